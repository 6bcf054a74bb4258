"""The largest radius that is certified, and the smallest perturbation that changes the class."""
