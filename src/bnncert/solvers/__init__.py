"""Adapters to the optimisation libraries that do the numerical work."""
