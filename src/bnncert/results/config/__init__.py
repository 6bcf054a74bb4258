"""Configurations of experiments: YAML and JSON with line numbers, checked completely."""
