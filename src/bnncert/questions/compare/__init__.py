"""Whether two networks give the same class."""
