"""An independent checker of certificates; it shares no code with the search for proofs."""

from bnncert.checking.checker import check
from bnncert.checking.container import RejectedError, UnreadableError
from bnncert.checking.statement import Report

__all__ = ["RejectedError", "Report", "UnreadableError", "check"]
