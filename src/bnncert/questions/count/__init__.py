"""How many grid points of a region have another class."""
