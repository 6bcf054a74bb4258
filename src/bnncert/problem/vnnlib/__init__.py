"""VNN-LIB queries, versions 1.0 and 2.0."""
