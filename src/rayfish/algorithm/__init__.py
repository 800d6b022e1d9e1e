"""Stage 4 of 8: experiment, environment and model become an RLlib algorithm."""
