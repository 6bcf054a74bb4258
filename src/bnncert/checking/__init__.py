"""The checker of certificates.

It shares no code with the search for proofs.  What both sides share is the definition: the network
in its normal form (`bnncert.network`) and, for composite certificates, the rules that say what a
claim means (`bnncert.checking.rules`).  docs/certificates.md draws this boundary.
"""

from bnncert.checking.checker import check
from bnncert.checking.container import RejectedError, UnreadableError
from bnncert.checking.statement import Report

__all__ = ["RejectedError", "Report", "UnreadableError", "check"]
