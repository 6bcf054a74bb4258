"""An independent checker of certificates; it uses nothing of the code that finds proofs."""

from bnncert.checking.checker import check
from bnncert.checking.container import RejectedError, UnreadableError
from bnncert.checking.statement import Report

__all__ = ["RejectedError", "Report", "UnreadableError", "check"]
