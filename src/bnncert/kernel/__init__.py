"""The checker of certificates.

It shares no code with the search for proofs.  What both sides share is the definition: the network
in its normal form (`bnncert.model`) and, for composite certificates, the rules that say what a
claim means (`bnncert.kernel.rules`).  docs/certificates.md draws this boundary.
"""

from bnncert.kernel.checker import check
from bnncert.kernel.container import RejectedError, UnreadableError
from bnncert.kernel.statement import Report

__all__ = ["RejectedError", "Report", "UnreadableError", "check"]
