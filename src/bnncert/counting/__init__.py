"""How many grid points of a region have another class."""

from bnncert.counting.counting import count
from bnncert.counting.result import CountInterrupt, CountResult, ShareEstimate

__all__ = ["CountInterrupt", "CountResult", "ShareEstimate", "count"]
