"""Readers and writers of files: models of each family, points, labels and images.

The package imports none of its modules: some commands start without NumPy.
"""
