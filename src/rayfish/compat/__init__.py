"""Every touch of a private name of Ray, torch, Hydra or Tune, with the reason and a test."""
