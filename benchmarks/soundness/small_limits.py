"""Limits of the engines, made so small that tiny networks reach them.

A search that enumerates nodes with thousands of patterns never divides a node of a tiny network,
and an elimination never splits a bucket.  Each draw changes some of the limits for one answer.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias
from unittest import mock

import numpy as np

#: Limits that are changed together: module, name, and the values to draw from.
Limits: TypeAlias = tuple[tuple[str, str, tuple[Any, ...]], ...]

GROUPS: dict[str, Limits] = {
    "nodes of bab": (
        ("search.node_patterns", "WORTH_IT", (0,)),
        ("search.node_patterns", "MOST_OPEN", (2, 4, 15)),
        ("search.tree", "ENUMERATED", (1, 64)),
    ),
    "batches of patterns": (
        ("search.patterns.search", "BATCH", (1, 4)),
        ("search.patterns.search", "PATTERNS", (1, 8)),
        ("search.patterns.search", "ENUMERATED_SIGNS", (0, 1, 2)),
        ("search.patterns.search", "MOST_PLAIN", (1, 4, 16)),
    ),
    "enumeration": (
        ("search.patterns.enumeration_numpy", "CHUNK", (1, 3)),
        ("search.patterns.enumeration", "MOST_FOUND", (2, 3)),
        ("search.patterns.enumeration", "MOST_COMPILED", (1, 4, 16, 2**20)),
        ("search.patterns.enumeration", "CALL_WEIGHTS", (1,)),
    ),
    "patterns of a box": (
        ("search.patterns.search", "FEW_SIGNS", (0, 2)),
        ("search.patterns.search", "MOST_SETS", (0, 4)),
        ("search.patterns.search", "MOST_OPEN", (1, 3, 18)),
        ("search.patterns.cells", "MOST_FOUND", (1, 3, 64)),
        ("search.patterns.cells", "MOST_PROOFS", (1, 4096)),
        ("search.patterns.cells", "UNCHECKED", (0, 1, 3)),
        ("search.patterns.cells", "SWEEPS", (1, 8)),
    ),
    "budgets": (("search.patterns.flips", "MOST_CLASSES", (1, 2)),),
    "tables of elimination": (
        ("search.elimination.factors", "MOST_INPUTS", (1, 2, 3)),
        ("search.elimination.factors", "BLOCK", (1, 16)),
    ),
    "buckets of elimination": (
        ("search.elimination.search", "FIRST_SECONDS", (1e-9,)),
        ("search.elimination.bound", "WIDTHS", ((1,), (2, 1), (3, 2))),
        ("search.elimination.clause_pool", "SHORT", (1, 4)),
        ("methods.elimination", "MEMORY_SHARE", (1e-12, 1e-7)),
    ),
    "estimates of elimination": (("search.elimination.bound", "ENTRY_SECONDS", (1.0, 1e-2)),),
    "cores": (("reachability.cores", "MOST_SHRUNK", (0, 2)),),
    "slices of auto": (
        ("methods.auto_run", "FIRST_SLICE", (1e-4, 0.01)),
        ("methods.auto", "SHORT_PATTERNS", (0.0, 1e-4)),
        ("methods.auto_run", "LARGE", (0, 600)),
        ("methods.auto_run", "DEEP", (2, 3, 9)),
    ),
    "processes": (
        ("methods.propagation", "ALONE", (0.0,)),
        ("methods.propagation", "WORTH_STARTING", (0.0,)),
        ("search.patterns.sharing", "SLICE", (0.01,)),
        ("search.patterns.sharing", "MOST_GIVEN", (1, 4)),
        ("search.parallel", "ALONE", (0.0,)),
    ),
}

#: The same for the checker.
OF_CHECKER: dict[str, Limits] = {
    "the compiled loop": (
        ("checking.patterns", "LOOP", (1, 4)),
        ("checking.patterns", "LOOP_TOGETHER", (1, 8)),
        ("checking.flip_sets", "CALL", (1, 3)),
        ("checking.flip_sets", "FOUND", (1, 2)),
        ("checking.flip_sets", "MOST_BITS", (0, 4, 52)),
    ),
    "leaves": (
        ("checking.patterns", "LEAVES", (1, 3)),
        ("checking.patterns", "TOGETHER", (1, 4)),
        ("checking.patterns", "CLAUSES", (1, 2)),
    ),
    "tables": (("checking.elimination", "BLOCK", (1, 16)),),
    "budgets": (("checking.flips", "MOST_CLASSES", (1, 2)),),
}

#: How often a group is drawn.
SHARE = 0.4


@contextmanager
def small_limits(rng: np.random.Generator, groups: Mapping[str, Limits] = GROUPS) -> Iterator[None]:
    """Change some groups of limits for a while."""
    with ExitStack() as stack:
        for limits in groups.values():
            if rng.random() > SHARE:
                continue
            for module, name, values in limits:
                value = values[int(rng.integers(len(values)))]
                place = importlib.import_module(f"bnncert.{module}")
                stack.enter_context(mock.patch.object(place, name, value))
        yield
