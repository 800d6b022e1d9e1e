"""Old RLlib experiment files, Ray 1.9 to 2.9: recognised, translated, migrated."""
