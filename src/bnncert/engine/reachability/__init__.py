"""Whether an input of the region has given signs in the first layer."""
