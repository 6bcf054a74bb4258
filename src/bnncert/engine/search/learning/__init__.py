"""Conflict-driven search over the signs of all layers."""
