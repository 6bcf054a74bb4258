"""Experiments: networks, data, norms, radii and methods from one file, answered once each."""
