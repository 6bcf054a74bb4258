r"""Moving costs between the mini-buckets of one variable.

Let I be the variables that all mini-buckets g_1, .., g_r share, and mu_m(x_I) the minimum of g_m
over its other variables.  Adding  share_m(x_I) - mu_m(x_I)  to g_m, where the shares sum to
sum_m mu_m, changes no sum g_1 + .. + g_r and makes the mini-buckets agree on which x_I is best:
the bound min g_1 + .. + min g_r usually grows.  Shares are integers, so everything stays exact.
"""

from __future__ import annotations

import numpy as np

from bnncert.engine.search.elimination.tables import TableArray, float_type, spread

Part = tuple[tuple[int, ...], TableArray, int]


def match_costs(parts: list[Part]) -> list[Part]:
    """Return the mini-buckets (scope, values, reach) after moving costs between them."""
    shared = set(parts[0][0]).intersection(*(scope for scope, _, _ in parts[1:]))
    common = tuple(v for v in parts[0][0] if v in shared)
    least = []
    for scope, values, _ in parts:
        others = tuple(i for i, v in enumerate(scope) if v not in shared)
        least.append(values.min(axis=others).astype(np.float64))
    possible = np.all(np.isfinite(np.broadcast_arrays(*least)), axis=0)
    finite = [np.where(possible, mu, 0.0) for mu in least]
    total = sum(finite[1:], finite[0])
    share = np.floor(total / len(parts))
    moved = []
    for number, ((scope, values, reach), mu) in enumerate(zip(parts, finite, strict=True)):
        # The first part gets the remainder of the division.
        own = share if number else total - share * (len(parts) - 1)
        change = own - mu
        wider = reach + int(np.abs(change).max(initial=0))
        kind = float_type(wider)
        # A pattern that one part excludes is excluded in all of them.
        change = np.where(possible, change, np.inf).astype(kind)
        moved.append((scope, values.astype(kind) + spread(change, common, scope), wider))
    return moved
