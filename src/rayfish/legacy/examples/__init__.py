"""RLlib's example environments that today's Ray no longer ships, written again under their old names."""
