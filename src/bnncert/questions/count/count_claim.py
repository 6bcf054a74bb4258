"""The certificate of a count: the tree, and a part if another method proves the whole region."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.kernel.container import MOST_NUMBERS
from bnncert.problem import Problem, Ties
from bnncert.proofs.claims import claim_section, class_details, write_claim
from bnncert.questions.count.count_search import CountSearch
from bnncert.questions.count.count_tree import Kind, Record


def write_count(
    path: str | os.PathLike[str],
    problem: Problem,
    ties: Ties,
    search: CountSearch,
    lower: int,
    witness: FloatArray | None,
    part: Path | None = None,
) -> str:
    """Write the certificate; return why it was not written, or nothing.

    `part` is the certificate of a proof for the whole region.
    """
    details = class_details(problem, problem.network, ties)
    details |= {"total": f"{search.total:x}", "lower": f"{lower:x}", "upper": f"{search.upper:x}"}
    claim = claim_section("count", problem.region, details, _tree(search.root))
    if witness is not None and search.changed == 0:
        claim.arrays["witness"] = witness
    if sum(array.size for array in claim.arrays.values()) > MOST_NUMBERS:
        return f"the tree has more than {MOST_NUMBERS} numbers"
    write_claim(path, claim, () if part is None else (part,))
    return ""


def _tree(root: Record) -> dict[str, IntArray]:
    """Return the nodes in preorder."""
    records = list(root.preorder())
    splits = [r for r in records if r.kind == Kind.SPLIT]
    mergers = [r for r in records if r.kind == Kind.MERGED]
    opened = [r.open for r in mergers if r.open is not None]
    groups = [r.group for r in mergers if r.group is not None]
    none = np.zeros(0, dtype=np.int64)
    return {
        "kinds": np.array([r.kind for r in records], dtype=np.int8),
        "split_items": np.array([r.item for r in splits], dtype=np.int32),
        "split_at": np.array([r.at for r in splits], dtype=np.int32),
        "open_sizes": np.array([o.size for o in opened], dtype=np.int32),
        "open": np.concatenate([none, *opened]).astype(np.int32),
        "group_sizes": np.array([g.size for g in groups], dtype=np.int32),
        "groups": np.concatenate([none, *groups]).astype(np.int32),
    }
