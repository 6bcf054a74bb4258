"""Whether two networks give the same class."""

from bnncert.equivalence.comparison import compare_networks
from bnncert.equivalence.result import ComparisonInterrupt, NetworkComparison

__all__ = ["ComparisonInterrupt", "NetworkComparison", "compare_networks"]
