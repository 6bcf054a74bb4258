"""Branch and bound over the signs of neurons."""
