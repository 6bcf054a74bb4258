"""How many weight bits may flip, or thresholds be stuck, before the class can change."""

from bnncert.faults.result import FaultRow, FaultsInterrupt, FaultsResult
from bnncert.faults.search import tolerated_faults

__all__ = ["FaultRow", "FaultsInterrupt", "FaultsResult", "tolerated_faults"]
