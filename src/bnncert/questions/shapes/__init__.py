"""Robustness on finite unions of boxes: patches, shifts, and brightness in steps of a grid."""
