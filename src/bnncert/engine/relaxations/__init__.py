"""Relaxations and exact encodings of a reduced problem, ready for a solver."""
