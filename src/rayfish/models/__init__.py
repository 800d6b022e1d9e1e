"""Stage 3 of 8: takes spaces and the model section, gives a torch module."""
