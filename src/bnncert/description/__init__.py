"""The content of a model file, and the exact arithmetic that decides its thresholds."""
