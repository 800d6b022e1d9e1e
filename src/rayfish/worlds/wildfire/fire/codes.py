"""The names and numbers of cells, as SimFire has them."""

from __future__ import annotations

UNBURNED, BURNING, BURNED, FIRELINE, SCRATCHLINE, WETLINE = range(6)

NAMES = ("unburned", "burning", "burned", "fireline", "scratchline", "wetline")
"""What each code is called, by code."""

LINES = {"fireline": FIRELINE, "scratchline": SCRATCHLINE, "wetline": WETLINE}
"""Kinds of control lines."""

ATTENUATION_FT = {FIRELINE: 980.0, SCRATCHLINE: 490.0, WETLINE: 245.0}
"""Feet of spread that SimFire takes away per update from a cell with a line."""

HOLDING_FT = {FIRELINE: 11.0, SCRATCHLINE: 4.0, WETLINE: 8.0}
"""Flame lengths that a line holds (physics `behave`): hand tools to 4 ft, engines and dozers to 8, a line
bulldozed wide to 11; above that, fire behaviour guides call every attack at the head ineffective."""

NEIGHBOURS = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
"""(dx, dy) to the neighbours of a cell, y downwards, in SimFire's order: E, SE, S, SW, W, NW, N, NE."""

MPH = 88.0
"""Feet per minute in one mile per hour."""
