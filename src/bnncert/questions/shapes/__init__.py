"""Shapes of change: robustness on unions of boxes, and the largest size that is proved."""
