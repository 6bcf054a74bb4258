"""Robustness on finite unions of boxes: patches, shifts, and brightness in steps of a grid."""

from __future__ import annotations

from bnncert.unions.answer import solve_union
from bnncert.unions.question import UnionQuestion

__all__ = ["UnionQuestion", "solve_union"]
