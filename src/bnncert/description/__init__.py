"""What a model file says, and the exact arithmetic that decides its thresholds."""
