"""How many weight bits may flip, or thresholds be stuck, before the class can change."""
