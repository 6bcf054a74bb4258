r"""Patterns near the minimum, by eliminating with perturbed costs.

A random multiple of x_v is added to the costs of every variable v.  The minimising patterns of
several perturbations differ in signs that have little influence, and agree in the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.engine.search.elimination.bound import columns
from bnncert.engine.search.elimination.tables import Model, Table, float_type, spread


def influences(model: Model, size: int) -> FloatArray:
    """Return the change of each objective (column) that each of `size` variables (row) can make."""
    total = np.zeros((size, model.objectives))
    for table in model.tables:
        if not table.scope or table.values.shape[-1] != model.objectives:
            continue
        axes = tuple(range(len(table.scope)))
        high = np.where(np.isfinite(table.values), table.values, -np.inf).max(axis=axes)
        move = high - table.values.min(axis=axes)
        total[list(table.scope)] += np.where(np.isfinite(move), move, 0.0)
    return total


def perturbed(
    model: Model, objective: int, influence: FloatArray, generator: np.random.Generator, count: int
) -> Model:
    """Return `count` perturbations of one objective; `influence` are the sizes of the noise."""
    own: IntArray = np.full(count, objective, dtype=np.int64)
    noise = np.rint(generator.normal(size=(influence.size, count)) * influence[:, None])
    tables, done = [], set()
    for table in columns(model, own).tables:
        # Each variable is perturbed in the first table that has it and belongs to the objective.
        new = [v for v in table.scope if v not in done]
        if not new or table.values.shape[-1] != count:
            tables.append(table)
            continue
        done.update(new)
        tables.append(_with_noise(table, {v: noise[v] for v in new}))
    return replace(model, tables=tuple(tables), objectives=count)


def _with_noise(table: Table, noise: dict[int, FloatArray]) -> Table:
    reach = table.reach + sum(int(np.abs(weights).max()) for weights in noise.values())
    values = table.values.astype(float_type(reach))
    for v, weights in noise.items():
        values = values + spread(np.stack([weights, -weights]), (v,), table.scope)
    return Table(table.scope, values.astype(float_type(reach)), reach)
