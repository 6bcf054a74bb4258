"""The smallest perturbation where the distances from the centre are whole numbers."""
