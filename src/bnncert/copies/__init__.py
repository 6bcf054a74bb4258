"""Two copies of one network in a query: monotone features and individual fairness."""

from bnncert.copies.pair import InputPair
from bnncert.copies.questions import check_fair, check_monotone
from bnncert.copies.result import PartResult, RelationInterrupt, RelationResult

__all__ = [
    "InputPair",
    "PartResult",
    "RelationInterrupt",
    "RelationResult",
    "check_fair",
    "check_monotone",
]
