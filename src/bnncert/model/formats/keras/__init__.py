"""Keras and Larq models (`.h5`, `.keras`), read without TensorFlow."""
