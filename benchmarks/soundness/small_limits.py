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
        ("engine.search.branching", "WORTH_IT", (0,)),
        ("engine.search.branching", "MOST_OPEN", (2, 4, 15)),
        ("engine.search.tree", "ENUMERATED", (1, 64)),
    ),
    "batches of patterns": (
        ("engine.search.patterns.pattern_search", "BATCH", (1, 4)),
        ("engine.search.patterns.pattern_search", "PATTERNS", (1, 8)),
        ("engine.search.patterns.pattern_search", "ENUMERATED_SIGNS", (0, 1, 2)),
        ("engine.search.patterns.pattern_search", "MOST_PLAIN", (1, 4, 16)),
    ),
    "enumeration": (
        ("engine.search.patterns.enumeration", "CHUNK", (1, 3)),
        ("engine.search.patterns.enumeration", "MOST_FOUND", (2, 3)),
        ("engine.search.patterns.enumeration", "MOST_COMPILED", (1, 4, 16, 2**20)),
        ("engine.search.patterns.enumeration", "CALL_WEIGHTS", (1,)),
    ),
    "patterns of a box": (
        ("engine.search.patterns.pattern_search", "FEW_SIGNS", (0, 2)),
        ("engine.search.patterns.pattern_search", "MOST_SETS", (0, 4)),
        ("engine.search.patterns.pattern_search", "MOST_OPEN", (1, 3, 18)),
        ("engine.search.patterns.cells", "MOST_FOUND", (1, 3, 64)),
        ("engine.search.patterns.cells", "MOST_PROOFS", (1, 4096)),
        ("engine.search.patterns.cells", "UNCHECKED", (0, 1, 3)),
        ("engine.search.patterns.cells", "SWEEPS", (1, 8)),
    ),
    "budgets": (("engine.search.patterns.flips", "MOST_CLASSES", (1, 2)),),
    "tables of elimination": (
        ("engine.search.elimination.factors", "MOST_INPUTS", (1, 2, 3)),
        ("engine.search.elimination.factors", "BLOCK", (1, 16)),
    ),
    "buckets of elimination": (
        ("engine.search.elimination.elimination_search", "FIRST_SECONDS", (1e-9,)),
        ("engine.search.elimination.bound", "WIDTHS", ((1,), (2, 1), (3, 2))),
        ("engine.search.elimination.elimination_search", "SHORT", (1, 4)),
        ("engine.methods.elimination", "MEMORY_SHARE", (1e-12, 1e-7)),
    ),
    "estimates of elimination": (
        ("engine.search.elimination.bound", "ENTRY_SECONDS", (1.0, 1e-2)),
    ),
    "cores": (("engine.reachability.fast_signs", "MOST_SHRUNK", (0, 2)),),
    "slices of auto": (
        ("engine.methods.auto", "DEEP", (2, 3, 9)),
        ("engine.methods.auto", "FEW", (0, 3, 16)),
        ("engine.methods.auto", "LARGE", (0, 5_000_000)),
        ("engine.methods.auto", "LOCAL", (0.0, 0.25, 1.0)),
        ("engine.methods.auto", "OTHERWISE", (0.5, 100.0)),
        ("engine.methods.propagation", "PATTERNS", (1e-6, 0.02)),
        ("engine.methods.engine", "CUBE", (1e-14, 1e-10)),
        ("engine.methods.integer_programs", "PROGRAM", (1e-4, 0.2)),
    ),
    "processes": (
        ("engine.methods.propagation", "ALONE", (0.0,)),
        ("engine.methods.propagation", "WORTH_STARTING", (0.0,)),
        ("engine.search.patterns.sharing", "SLICE", (0.01,)),
        ("engine.search.patterns.sharing", "MOST_GIVEN", (1, 4)),
        ("engine.search.parallel", "ALONE", (0.0,)),
    ),
}

#: The same for the checker.
OF_CHECKER: dict[str, Limits] = {
    "the compiled loop": (
        ("kernel.patterns", "LOOP", (1, 4)),
        ("kernel.patterns", "LOOP_TOGETHER", (1, 8)),
        ("kernel.flips", "CALL", (1, 3)),
        ("kernel.flips", "FOUND", (1, 2)),
        ("kernel.flips", "MOST_BITS", (0, 4, 52)),
    ),
    "leaves": (
        ("kernel.patterns", "LEAVES", (1, 3)),
        ("kernel.patterns", "TOGETHER", (1, 4)),
        ("kernel.patterns", "CLAUSES", (1, 2)),
    ),
    "tables": (("kernel.elimination", "BLOCK", (1, 16)),),
    "budgets": (("kernel.flips", "MOST_CLASSES", (1, 2)),),
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
