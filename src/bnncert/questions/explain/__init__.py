"""Explanations: which inputs decided the class of an image."""
