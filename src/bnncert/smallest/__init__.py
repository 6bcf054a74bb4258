"""The smallest perturbation where the distances from the centre are whole numbers."""

from bnncert.smallest.search import Known, SmallestInterrupt, SmallestResult, find_smallest

__all__ = ["Known", "SmallestInterrupt", "SmallestResult", "find_smallest"]
