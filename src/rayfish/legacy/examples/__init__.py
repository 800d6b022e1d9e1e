"""RLlib's example environments that today's Ray no longer ships, written anew under their old names."""
