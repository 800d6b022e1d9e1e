"""Stage 6 of 8: takes an experiment, gives one run from start to end."""
