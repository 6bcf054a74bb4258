"""Search over first-layer sign patterns, by propagation and enumeration."""
