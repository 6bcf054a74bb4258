"""Benchmarks behind the figures of the documentation."""
