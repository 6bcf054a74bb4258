r"""Conflicting pairs: signs of two neurons that cannot occur together over a region.

Sign s of neuron a needs s w_a.x + c_a^s >= 0.  Signs (s, t) of (a, b) cannot occur together iff

    min over theta in [0, 1] of  h(theta s w_a + (1-theta) t w_b) + theta c_a + (1-theta) c_b  <  0

with the support function h of the region; theta and 1 - theta are the Farkas multipliers that prove
it, and every theta is sound.  Where h has a closed form, all pairs are evaluated at once:

* box, weights in {-1, 0, 1}: the function is piecewise linear with its only inner kink at 1/2,
  where |x + y| = |x| + |y| - |x||y| + xy; in large layers, whose neurons share inputs with few
  others, the products are sparse;
* box, other weights: the kinks differ by coordinate; the convex function is minimised by bisection;
* L2 ball: h = m.v + r |v|_2 from the Gram matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from bnncert.arrays import FloatArray, IntArray
from bnncert.deadline import Deadline
from bnncert.engine.presolve.conflicts import ConflictingPairs
from bnncert.engine.presolve.literals import literal, sign_of, variable_of
from bnncert.model.layers import UNIT
from bnncert.regions import Region

#: theta is rounded to a multiple of 1 / GRID, so that theta and 1 - theta are exact.
GRID = 2.0**12

#: Entries of a dense block of candidate rows.
CHUNK = 4_000_000

#: In layers with more neurons only pairs that share inputs are searched.
MOST_DENSE = 2500

#: The largest number of multiplications for them; a layer that needs more is not searched.
MOST_WORK = 1e9

#: The largest number of entries of a dense table of all rows; a larger one is not made.
MOST_CELLS = 2**27

#: Multiplications of dense rows between two looks at the clock.
PRODUCTS_AT_ONCE = 2e9

#: The signs of two neurons.
SIGNS = ((1, 1), (1, -1), (-1, 1), (-1, -1))

#: Returns the conflicting pairs of a block; see `_blocks`.
BlockSearch: TypeAlias = Callable[[Any, Any], ConflictingPairs]


def conflicting_pairs(
    region: Region,
    weights: Any,
    plus_from: FloatArray,
    minus_upto: FloatArray,
    deadline: Deadline | None = None,
) -> ConflictingPairs:
    """Return the conflicting pairs among unstable neurons.

    Parameters
    ----------
    weights
        CSR, one row for each neuron.
    plus_from, minus_upto
        x = +1 needs w.x >= plus_from, and x = -1 needs w.x <= minus_upto.
    deadline
        After it, the pairs found so far are returned.
    """
    count = weights.shape[0]
    used = np.unique(weights.indices)
    if count < 2 or not used.size:
        return ConflictingPairs.none()
    is_box, is_ball = region.is_box, region.norm in ("l0", "l1", "l2")
    if is_box and used.size == weights.indices.size:
        # Over a box, neurons that read disjoint inputs take their signs independently.
        return ConflictingPairs.none()
    deadline = deadline or Deadline(None)
    if count > MOST_DENSE:
        sharing = np.bincount(weights.indices).astype(np.float64)
        if float(sharing @ sharing) > MOST_WORK:
            return ConflictingPairs.none()
    need = np.stack([-plus_from, minus_upto])
    part = weights[:, used]
    lo, hi = region.lo[used], region.hi[used]
    is_large = count > MOST_DENSE or count * used.size > MOST_CELLS
    if is_large and is_box and _is_ternary(weights):
        return _sparse_ternary_box(part, need, lo, hi, deadline)
    first, second = _candidates(weights, share=not is_ball)
    if first is None and (count * used.size > MOST_CELLS or deadline.passed()):
        return ConflictingPairs.none()
    found: list[ConflictingPairs] = []
    part = part.astype(np.float64)
    # Blocks of rows against all neurons use the same dense table.
    part = part.toarray() if first is None else part
    make = _ternary_box if _is_ternary(weights) else _general_box
    over_box = make(part, need, lo, hi, deadline)
    for a, b in _blocks(count, first, second, part.shape[1]):
        if deadline.passed():
            break
        found.append(over_box(a, b))
        if region.norm == "l2":
            found.append(_l2_ball(part, need, region, used, a, b, deadline))
    known = _union(found)
    if is_box:
        return known
    # Over these regions more pairs conflict than over the box or the ball alone.
    most = MOST_ROWS if is_ball else MOST_PROGRAMS
    return _union([known, _by_support(region, weights, need, known, most, deadline)])


def _is_ternary(weights: Any) -> bool:
    return bool(np.all(np.abs(weights.data) == 1))


def _candidates(weights: Any, *, share: bool) -> tuple[IntArray | None, IntArray | None]:
    """Return the pairs to search, or None for all of them."""
    if weights.shape[0] <= MOST_DENSE or not share:
        return None, None
    pattern = weights.astype(bool).astype(np.float32)
    together = (pattern @ pattern.T).tocoo()
    upper = together.row < together.col
    return together.row[upper].astype(np.int64), together.col[upper].astype(np.int64)


def _blocks(
    count: int, first: IntArray | None, second: IntArray | None, inputs: int
) -> list[tuple[Any, Any]]:
    """Return blocks of pairs: (rows, None) means these rows against all neurons."""
    if first is None or second is None:
        height = max(1, int(min(CHUNK, PRODUCTS_AT_ONCE / inputs) / count))
        starts = range(0, count, height)
        return [(np.arange(s, min(s + height, count)), None) for s in starts]
    step = max(1, CHUNK // max(inputs, 1))
    return [(first[s : s + step], second[s : s + step]) for s in range(0, first.size, step)]


def _pick(value: FloatArray, theta: Any, a: Any, b: Any, s: int, t: int) -> ConflictingPairs:
    """Return the pairs whose value is below zero."""
    if b is None:
        i, j = np.nonzero(value < 0)
        keep = a[i] < j
        i, j = i[keep], j[keep]
        weight = np.broadcast_to(theta, value.shape)[i, j]
        left, right = a[i], j
    else:
        i = np.flatnonzero(value < 0)
        weight = np.broadcast_to(theta, value.shape)[i]
        left, right = a[i], b[i]
    return ConflictingPairs(
        literal(left, s), literal(right, t), np.asarray(weight, dtype=np.float64)
    )


def _union(parts: list[ConflictingPairs]) -> ConflictingPairs:
    """Return all pairs, each once and with its first proof."""
    pairs = ConflictingPairs.joined(parts)
    base = int(max(pairs.first.max(initial=0), pairs.second.max(initial=0))) + 1
    return pairs.part(np.unique(pairs.first * base + pairs.second, return_index=True)[1])


def _product(left: Any, right: Any, b: Any) -> FloatArray:
    """Return left right' for all pairs, or row by row."""
    if b is None:
        return np.asarray(left @ right.T)
    return np.asarray(np.einsum("ij,ij->i", left, right))


def _dense(rows: Any) -> FloatArray:
    """Return rows as a dense array, in which they may already be."""
    return np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray())


def _ternary_box(
    weights: Any, need: FloatArray, lo: FloatArray, hi: FloatArray, deadline: Deadline
) -> BlockSearch:
    """Try theta = 1/2 for all pairs of rows with entries in {-1, 0, 1}."""
    half = middle_and_half_width(lo, hi)[1]
    room, sizes = _room(weights, need, lo, hi), abs(weights)

    def search(a: Any, b: Any) -> ConflictingPairs:
        rows, size = _dense(weights[a]), _dense(sizes[a])
        others, other_size = (weights, sizes) if b is None else (weights[b], sizes[b])
        overlap = _product(size * half, _dense(other_size), b)
        signed = _product(rows * half, _dense(others), b)
        found = []
        for s, t in SIGNS:
            if deadline.passed():
                break
            own, theirs = room[int(s < 0)][a], room[int(t < 0)]
            total = (own[:, None] + theirs[None, :]) if b is None else own + theirs[b]
            value = total - overlap + s * t * signed
            value += UNIT * 8 * np.abs(total)
            found.append(_pick(value, 0.5, a, b, s, t))
        return ConflictingPairs.joined(found)

    return search


def middle_and_half_width(lo: FloatArray, hi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the middle of a box, and its largest distance from the sides."""
    middle = lo + (hi - lo) / 2
    return middle, np.maximum(hi - middle, middle - lo)


def _room(weights: Any, need: FloatArray, lo: FloatArray, hi: FloatArray) -> FloatArray:
    """Return for each sign the maximum of its condition s w.x + c, rounded up."""
    middle, half = middle_and_half_width(lo, hi)
    rows = weights.astype(np.float64, copy=False)
    size = abs(rows)
    at, reach = rows @ middle, size @ half
    # The rounding of all sums here and in the callers, with those of the middle and half width.
    doubt = (rows.shape[1] + 16) * UNIT * 2 * (size @ np.maximum(np.abs(lo), np.abs(hi)))
    signs = np.array([[1.0], [-1.0]])
    return np.asarray(signs * at + reach + need + doubt + UNIT * 4 * np.abs(need))


def _sparse_ternary_box(
    weights: Any, need: FloatArray, lo: FloatArray, hi: FloatArray, deadline: Deadline
) -> ConflictingPairs:
    """Try theta = 1/2 for a large layer whose neurons share inputs with few others.

    Over shared inputs |x||y| - xy is 2 where the signs differ and |x||y| + xy is 2 where they
    agree.  Signs that differ or agree nowhere do not conflict.
    """
    half = middle_and_half_width(lo, hi)[1]
    room = _room(weights, need, lo, hi)
    rows = weights.astype(np.float64)
    plus, minus = rows.maximum(0).tocsr(), (-rows).maximum(0).tocsr()
    scaled_plus, scaled_minus = plus.multiply(half).tocsr(), minus.multiply(half).tocsr()
    found = []
    sharing = np.bincount(weights.indices, minlength=weights.shape[1]).astype(np.float64)
    work = np.cumsum(abs(rows) @ sharing)
    step = max(1, int(weights.shape[0] * CHUNK / max(float(work[-1]), 1.0)))
    for start in range(0, weights.shape[0], step):
        if deadline.passed():
            break
        mine = slice(start, min(start + step, weights.shape[0]))
        # The inputs on which the signs of two neurons differ, and those on which they agree.
        for with_plus, with_minus, product in ((minus, plus, 1), (plus, minus, -1)):
            if deadline.passed():
                break
            table = (scaled_plus[mine] @ with_plus.T + scaled_minus[mine] @ with_minus.T).tocoo()
            a, b = table.row.astype(np.int64) + start, table.col.astype(np.int64)
            kept = np.flatnonzero(a < b)
            a, b, common = a[kept], b[kept], 2 * table.data[kept]
            for s in (1, -1):
                t = s * product
                total = room[int(s < 0)][a] + room[int(t < 0)][b]
                found.append(_pick(total - common + UNIT * 8 * np.abs(total), 0.5, a, b, s, t))
    return _union(found)


def _general_box(
    weights: Any, need: FloatArray, lo: FloatArray, hi: FloatArray, deadline: Deadline
) -> BlockSearch:
    """Minimise over theta by bisection on the slope, for weights of any kind."""
    middle, half = middle_and_half_width(lo, hi)
    dense = _dense(weights)
    step = max(1, CHUNK // max(dense.shape[1], 1))
    at = dense @ middle
    size = np.abs(dense) @ (np.maximum(np.abs(lo), np.abs(hi)))

    def search(a: Any, b: Any) -> ConflictingPairs:
        if b is None:
            i, b = np.nonzero(a[:, None] < np.arange(dense.shape[0]))
            a = a[i]
        found: list[ConflictingPairs] = []
        for start in range(0, a.size, step):
            i, j = a[start : start + step], b[start : start + step]
            for s, t in SIGNS:
                if deadline.passed():
                    return ConflictingPairs.joined(found)
                found.append(_bisect_box(dense, half, at, size, need, i, j, s, t, deadline))
        return ConflictingPairs.joined(found)

    return search


def _bisect_box(
    dense: FloatArray,
    half: FloatArray,
    at: FloatArray,
    size: FloatArray,
    need: FloatArray,
    i: IntArray,
    j: IntArray,
    s: int,
    t: int,
    deadline: Deadline,
) -> ConflictingPairs:
    left, right = s * dense[i], t * dense[j]
    constant = s * at[i] + need[int(s < 0)][i]
    other = t * at[j] + need[int(t < 0)][j]
    slack = (dense.shape[1] + 24) * UNIT * 2
    doubt = slack * (size[i] + size[j] + np.abs(constant) + np.abs(other))
    low, high = np.zeros(i.size), np.ones(i.size)
    best, place = np.full(i.size, np.inf), np.full(i.size, 0.5)
    alive = np.arange(i.size)
    for _ in range(14):
        # Every theta is sound: without time the best one so far counts.
        if not alive.size or deadline.passed():
            break
        theta = np.round((low[alive] + high[alive]) / 2 * GRID) / GRID
        mixed = theta[:, None] * left[alive] + (1 - theta)[:, None] * right[alive]
        value = np.abs(mixed) @ half + theta * constant[alive] + (1 - theta) * other[alive]
        slope = (np.sign(mixed) * (left[alive] - right[alive])) @ half
        slope += constant[alive] - other[alive]
        better = value < best[alive]
        place[alive[better]] = theta[better]
        best[alive] = np.minimum(best[alive], value)
        # By convexity the value is nowhere below that of the tangent at the far end.
        end = np.where(slope > 0, low[alive], high[alive])
        reachable = value + slope * (end - theta)
        rising = slope > 0
        high[alive[rising]] = theta[rising]
        low[alive[~rising]] = theta[~rising]
        alive = alive[(best[alive] + doubt[alive] >= 0) & (reachable < 0)]
    return _pick(best + doubt, place, i, j, s, t)


def _l2_ball(
    weights: Any, need: FloatArray, ball: Region, used: IntArray, a: Any, b: Any, deadline: Deadline
) -> ConflictingPairs:
    """Minimise r |theta v + (1 - theta) w|_2 + a linear term, from the Gram matrix."""
    middle, radius = ball.middle[used], ball.radius
    rows = _dense(weights[a])
    others = weights if b is None else _dense(weights[b])
    gram = _product(rows, others, b)
    square, other_square = (rows**2).sum(axis=1), (others**2).sum(axis=1)
    at, other_at = rows @ middle, others @ middle
    slack = (rows.shape[1] + 24) * UNIT * 2
    size = slack * (np.abs(rows) @ np.abs(middle) + radius * np.sqrt(square))
    other_size = slack * (np.abs(others) @ np.abs(middle) + radius * np.sqrt(other_square))
    found = []
    for s, t in SIGNS:
        if deadline.passed():
            break
        own = s * at + need[int(s < 0)][a]
        bound = need[int(t < 0)] if b is None else need[int(t < 0)][b]
        theirs = t * other_at + bound
        own = own + size + slack * np.abs(own)
        theirs = theirs + other_size + slack * np.abs(theirs)
        first, length = (own[:, None], square[:, None]) if b is None else (own, square)
        value, theta = _minimise_norm(length, other_square, s * t * gram, first, theirs, radius)
        found.append(_pick(value, theta, a, b, s, t))
    return ConflictingPairs.joined(found)


def _minimise_norm(
    p: FloatArray, q: FloatArray, r: FloatArray, c: FloatArray, d: FloatArray, radius: float
) -> tuple[FloatArray, FloatArray]:
    """Minimise radius sqrt(p th^2 + 2 r th (1-th) + q (1-th)^2) + c th + d (1-th) over th."""
    shape = np.broadcast_shapes(p.shape, q.shape, r.shape)
    low, high = np.zeros(shape), np.ones(shape)
    for _ in range(12):
        theta = (low + high) / 2
        other = 1 - theta
        norm = np.sqrt(np.maximum(p * theta**2 + 2 * r * theta * other + q * other**2, 1e-300))
        slope = radius * (p * theta + r * (other - theta) - q * other) / norm + c - d
        rising = slope > 0
        high, low = np.where(rising, theta, high), np.where(rising, low, theta)
    theta = np.round((low + high) / 2 * GRID) / GRID
    other = 1 - theta
    inside = p * theta**2 + 2 * r * theta * other + q * other**2
    # The three terms may cancel, so the rounding error is relative to their sizes.
    rounding = 16 * UNIT * (p * theta**2 + 2 * np.abs(r) * theta * other + q * other**2)
    value = radius * np.sqrt(np.maximum(inside, 0.0) + rounding) * (1 + 8 * UNIT)
    linear = c * theta + d * other
    value = value + linear + 8 * UNIT * (np.abs(c) * theta + np.abs(d) * other + value)
    return np.asarray(value), theta


#: The largest number of pairs for which the support function of the intersection of ball and box is
#: evaluated, and that of a polytope, which is a linear program.
MOST_ROWS, MOST_PROGRAMS = 3000, 200

#: The largest number of neurons all of whose pairs are ranked for it.
MOST_RANKED = 3000

#: The share of them that is evaluated between two checks of the deadline.
ROWS_AT_ONCE = 1 / 12


def _by_support(
    region: Region,
    weights: Any,
    need: FloatArray,
    known: ConflictingPairs,
    most: int,
    deadline: Deadline,
) -> ConflictingPairs:
    """Try theta = 1/2 with the support function of the region, most promising pairs first."""
    count = weights.shape[0]
    if count > MOST_RANKED or deadline.passed():
        # The table of all pairs does not fit into memory, or there is no time for it.
        return ConflictingPairs.none()
    dense = weights.astype(np.float64)
    alone = np.stack([region.support(dense), region.support(-dense)]) + need
    first, second = (v.astype(np.int64) for v in np.triu_indices(count, 1))
    a = np.concatenate([literal(first, s) for s in (1, 1, -1, -1)])
    b = np.concatenate([literal(second, t) for t in (1, -1, 1, -1)])
    done = np.zeros((2 * count, 2 * count), dtype=bool)
    done[known.first, known.second] = True
    room = _of_literals(alone, a) + _of_literals(alone, b)
    room[done[a, b]] = np.inf
    # Signs with small maxima are the most likely to exclude each other.
    order = _smallest(room, most)
    order = order[np.isfinite(room[order])]
    found = []
    step = int(ROWS_AT_ONCE * most)
    for start in range(0, order.size, step):
        if deadline.passed():
            break
        chosen = order[start : start + step]
        found.append(_supported(region, dense, need, a[chosen], b[chosen]))
    return _union(found)


def _smallest(values: FloatArray, most: int) -> IntArray:
    """Return the places of the smallest values in order, without sorting the others."""
    if values.size > most:
        places = np.flatnonzero(values <= np.partition(values, most - 1)[most - 1])
    else:
        places = np.arange(values.size)
    return places[np.argsort(values[places], kind="stable")][:most]


def _of_literals(by_sign: FloatArray, literals: IntArray) -> FloatArray:
    """Return the entries of literals in an array with one row for +1 and one for -1."""
    return np.asarray(by_sign.T.reshape(-1)[literals])


def _supported(
    region: Region, dense: Any, need: FloatArray, a: IntArray, b: IntArray
) -> ConflictingPairs:
    """Return those of the pairs of literals that theta = 1/2 excludes."""
    s, t = sign_of(a), sign_of(b)
    left, right = dense[variable_of(a)], dense[variable_of(b)]
    rows = left.multiply((0.5 * s)[:, None]) + right.multiply((0.5 * t)[:, None])
    reach = np.maximum(np.abs(region.lo), np.abs(region.hi))
    doubt = 4 * UNIT * (abs(left) @ reach + abs(right) @ reach)
    linear = 0.5 * (_of_literals(need, a) + _of_literals(need, b))
    value = region.support(rows.tocsr()) + linear + doubt
    value += 8 * UNIT * (np.abs(linear) + np.abs(value))
    kept = value < 0
    return ConflictingPairs(a[kept], b[kept], np.full(int(kept.sum()), 0.5))
