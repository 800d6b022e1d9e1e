"""Stage 4 of 8: takes experiment, env and model, gives an RLlib algorithm."""
