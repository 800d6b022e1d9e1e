"""Stage 2 of 8: takes an experiment, gives an environment factory."""
