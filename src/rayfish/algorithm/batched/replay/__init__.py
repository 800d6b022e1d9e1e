"""Replay: transitions kept in rings, drawn with or without priorities, handed between processes."""
