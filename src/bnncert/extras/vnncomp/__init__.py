"""VNN-COMP categories: a list of models and queries, each answered in a process of its own.

The package imports none of its modules: the command of one instance starts its process before it
imports modules that take time.
"""
