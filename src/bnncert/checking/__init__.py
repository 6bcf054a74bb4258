"""An independent checker of certificates; it uses nothing of the code that finds proofs."""

from bnncert.checking.checker import Report, check
from bnncert.checking.container import RejectedError, UnreadableError

__all__ = ["RejectedError", "Report", "UnreadableError", "check"]
