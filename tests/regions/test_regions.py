"""Regions against linear programs (polyhedra) and a bisection on the multiplier (L2 ball)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from bnncert.errors import InputError
from bnncert.regions import Ball, Box, EmptyRegionError, Grid, L0Ball, Norm, Point, Polytope, Region
from tests.strategies import few

CASES = few(15)

Array = npt.NDArray[Any]
KINDS = ("box", "linf", "l2", "l1", "polytope")
NORMS: tuple[Norm, ...] = ("linf", "l2", "l1")


# --- the oracle ------------------------------------------------------------------------------


def l2_maximum(v: Array, center: Array, radius: float, lo: Array, hi: Array) -> float:
    """Return v.x at a feasible x that maximises it: z = clip(v / m) with |z| = r, by bisection."""
    if radius == 0:
        return float(v @ center)

    def step(m: float) -> Array:
        return np.clip(v / m, lo - center, hi - center)

    low, high = 1e-12, max(1.0, 2 * float(np.linalg.norm(v)) / radius)
    if np.linalg.norm(step(low)) > radius:
        for _ in range(200):
            middle = math.sqrt(low * high)
            if np.linalg.norm(step(middle)) > radius:
                low = middle
            else:
                high = middle
        low = high
    return float(v @ (center + step(low)))


def oracle_support(region: Region, v: Array) -> float:
    """Return max v.x from the data that define the region."""
    if isinstance(region, Box):
        return sum(max(a * x, a * y) for a, x, y in zip(v, region.lo, region.hi, strict=True))
    if isinstance(region, Polytope):
        bounds = np.column_stack([region.lo, region.hi])
        found = linprog(-v, A_ub=region.matrix, b_ub=region.right, bounds=bounds)
        return float(-found.fun)
    assert isinstance(region, Ball)
    c, r = region.middle, region.radius
    lo = np.full(c.size, -np.inf) if region.clip_lo is None else region.clip_lo
    hi = np.full(c.size, np.inf) if region.clip_hi is None else region.clip_hi
    if region.norm == "l2":
        return l2_maximum(v, c, r, np.maximum(lo, c - r), np.minimum(hi, c + r))
    n = c.size
    if region.norm == "linf":
        found = linprog(-v, bounds=np.column_stack([np.maximum(lo, c - r), np.minimum(hi, c + r)]))
        return float(-found.fun)
    # x = c + p - q with p, q >= 0 and sum p + q <= r
    eye = np.eye(n)
    found = linprog(
        np.concatenate([-v, v]),
        A_ub=np.vstack(
            [
                np.ones(2 * n),
                np.hstack([eye, -eye])[hi < np.inf],
                np.hstack([-eye, eye])[lo > -np.inf],
            ]
        ),
        b_ub=np.concatenate([[r], (hi - c)[hi < np.inf], (c - lo)[lo > -np.inf]]),
    )
    return float(v @ c - found.fun)


def make(kind: str, rng: np.random.Generator, size: int | None = None) -> Region:
    n = int(rng.integers(1, 7)) if size is None else size
    center = rng.normal(size=n)
    radius = float(rng.choice([0.0, 0.1, 1.0, 3.0]) * rng.uniform(0.5, 1.5))
    if kind == "box":
        return Box(center - rng.uniform(0, 2, n), center + rng.uniform(0, 2, n))
    if kind == "polytope":
        matrix = np.round(rng.normal(size=(int(rng.integers(1, 5)), n)), 2)
        return Polytope(
            matrix, matrix @ center + rng.uniform(0, 1, matrix.shape[0]), center - 2, center + 1.5
        )
    if rng.uniform() < 0.3:
        return Ball(kind, center, radius)  # type: ignore[arg-type]
    # Some bounds cut the ball, some touch the centre, some do nothing.
    room = rng.choice([0.0, 0.2, 1.0, 5.0], (2, n))
    return Ball(kind, center, radius, center - room[0], center + room[1])  # type: ignore[arg-type]


def exactly_inside(region: Region, point: Point) -> bool:
    """Decide membership from the definition, in rationals."""
    x = [Fraction(v) for v in point]

    def box(lo: Array | None, hi: Array | None) -> bool:
        above = lo is None or all(a >= Fraction(b) for a, b in zip(x, lo.tolist(), strict=True))
        below = hi is None or all(a <= Fraction(b) for a, b in zip(x, hi.tolist(), strict=True))
        return above and below

    if isinstance(region, Ball):
        gaps = [abs(a - Fraction(c)) for a, c in zip(x, region.middle.tolist(), strict=True)]
        r = Fraction(region.radius)
        close = {
            "linf": max(gaps) <= r,
            "l1": sum(gaps) <= r,
            "l2": sum(g * g for g in gaps) <= r * r,
        }[region.norm]
        return close and box(region.clip_lo, region.clip_hi)
    if isinstance(region, Polytope):
        for row, b in zip(region.matrix.tolist(), region.right.tolist(), strict=True):
            if sum(Fraction(p) * q for p, q in zip(row, x, strict=True)) > Fraction(b):
                return False
    return box(region.lo, region.hi)


def outside_by(region: Region, point: Array) -> float:
    """Return by how much a point violates the worst constraint (0 inside)."""
    excess = [0.0, *(region.lo - point), *(point - region.hi)]
    if isinstance(region, Polytope):
        excess += list(region.matrix @ point - region.right)
    if isinstance(region, Ball):
        order = {"linf": np.inf, "l2": 2, "l1": 1}[region.norm]
        excess.append(float(np.linalg.norm(point - region.middle, order)) - region.radius)
    return max(excess)


# --- support functions -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@CASES
@given(seed=st.integers(0, 10**6))
def test_support_is_an_upper_bound_and_tight(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    region = make(kind, rng)
    rows = rng.normal(size=(6, region.size)) * rng.choice([1e-3, 1.0, 50.0], (6, 1))
    rows[rng.uniform(size=rows.shape) < 0.4] = 0.0
    rows[2] = 0.0
    rows[3] = rng.integers(-1, 2, region.size)
    found = region.support(rows)
    samples = region.sample(rng, 200)
    assert found.shape == (6,)
    for v, bound in zip(rows, found, strict=True):
        size = 1 + float(np.abs(v) @ np.maximum(np.abs(region.lo), np.abs(region.hi)))
        assert np.all(samples @ v <= bound + 1e-13 * size)
        expected = oracle_support(region, v)
        assert expected - 1e-9 * size <= bound <= expected + 1e-9 * size
    assert abs(found[2]) < 1e-200


@pytest.mark.parametrize("kind", KINDS)
def test_support_of_sparse_rows_is_that_of_dense_ones(kind: str) -> None:
    rng = np.random.default_rng(3)
    region = make(kind, rng, 5)
    rows = rng.normal(size=(4, 5))
    rows[rng.uniform(size=rows.shape) < 0.5] = 0.0
    rows[1] = 0.0
    stored = sp.csr_array(rows)
    # Zeros that are stored must not matter either.
    full = sp.csr_array((rows.reshape(-1), np.tile(np.arange(5), 4), np.arange(0, 21, 5)))
    assert full.nnz == 20
    expected = region.support(rows)
    for given_as in (stored, full, sp.csc_array(rows), sp.csr_array(rows.astype(np.float64))):
        np.testing.assert_allclose(region.support(given_as), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(region.support(rows[0]), expected[:1], rtol=1e-12)
    integers = sp.csr_array(np.array([[1, 0, -1, 1, 0]], dtype=np.int8))
    assert region.support(integers)[0] == pytest.approx(
        oracle_support(region, np.array([1.0, 0, -1, 1, 0])), abs=1e-9
    )


@CASES
@given(
    seed=st.integers(0, 10**6), norm=st.sampled_from(NORMS), scale=st.sampled_from([1e-6, 1.0, 1e6])
)
def test_support_of_ball_is_never_below_the_exact_value(
    seed: int, norm: Norm, scale: float
) -> None:
    """Without a data box h(v) = v.c + r |v|_dual, which squaring compares in rationals."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    center = scale * rng.normal(size=n)
    radius = float(scale * rng.uniform(0, 2))
    v = rng.normal(size=n)
    bound = Fraction(float(Ball(norm, center, radius).support(v[None])[0]))
    exact = [Fraction(a) for a in v.tolist()]
    base = sum(a * Fraction(c) for a, c in zip(exact, center.tolist(), strict=True))
    room, r = bound - base, Fraction(radius)
    if norm == "linf":
        assert room >= r * sum(map(abs, exact))
    elif norm == "l1":
        assert room >= r * max(map(abs, exact))
    else:
        assert room >= 0
        assert room**2 >= r * r * sum(a * a for a in exact)


@CASES
@given(seed=st.integers(0, 10**6))
def test_support_of_box_is_never_below_the_exact_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    region = make("box", rng)
    v = rng.normal(size=region.size) * 10.0 ** rng.integers(-8, 8, region.size)
    exact = sum(
        max(Fraction(a) * Fraction(x), Fraction(a) * Fraction(y))
        for a, x, y in zip(v.tolist(), region.lo.tolist(), region.hi.tolist(), strict=True)
    )
    assert Fraction(float(region.support(v[None])[0])) >= exact


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-160, 1e150, 1e160, 1e300])
def test_support_survives_extreme_weights(norm: Norm, size: float) -> None:
    region = Ball(norm, [0.0, 0.0], 1.0)
    (bound,) = region.support(np.array([[size, 0.0]]))
    assert size <= bound <= size * (1 + 1e-12) + 1e-299


@pytest.mark.parametrize("norm", NORMS)
def test_radius_zero_is_a_point(norm: Norm) -> None:
    center = np.array([0.1, -2.0, 3.0])
    region = Ball(norm, center, 0.0, -5.0, 5.0)
    v = np.array([[1.0, -1.0, 0.5], [0.0, 0.0, 2.0]])
    np.testing.assert_allclose(region.support(v), v @ center, rtol=1e-14)
    assert region.contains(center)
    assert not region.contains(np.nextafter(center, 9))
    np.testing.assert_array_equal(region.project(center[None] + 1), center[None])
    np.testing.assert_array_equal(
        region.sample(np.random.default_rng(0), 3), np.tile(center, (3, 1))
    )
    settled = region.settle(center + 1e-9)
    assert settled is not None
    np.testing.assert_array_equal(settled, center)


def test_data_box_that_touches_the_centre_limits_the_ball() -> None:
    # From the corner of the box only one quadrant of the disc is left.
    region = Ball("l2", [1.0, 1.0], 0.5, -1.0, 1.0)
    rows = np.array([[1.0, 1.0], [-3.0, -4.0], [1.0, -1.0]])
    np.testing.assert_allclose(region.support(rows), [2.0, -7.0 + 2.5, 0.5], atol=1e-12)
    region = Ball("l1", [1.0, 1.0], 0.5, -1.0, 1.0)
    np.testing.assert_allclose(region.support(rows), [2.0, -7.0 + 2.0, 0.5], atol=1e-12)


# --- membership ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@CASES
@given(seed=st.integers(0, 10**6))
def test_membership_is_exact_at_the_boundary(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    region = make(kind, rng)
    base = region.project(region.center + 5 * rng.normal(size=(8, region.size)))
    answers = set()
    for row in base:
        for toward in (0.0, math.inf, -math.inf):
            point = np.nextafter(row, toward) if toward else row
            expected = exactly_inside(region, point)
            answers.add(expected)
            assert region.contains(point) is expected
            assert region.contains([Fraction(v) for v in point.tolist()]) is expected
    assert answers


@CASES
@given(
    radius=st.sampled_from([0.1, 0.3, 1e-3, 1 / 3, 2.0**-30]),
    center=st.floats(-3, 3),
    norm=st.sampled_from(NORMS),
    ulps=st.integers(-2, 2),
)
def test_one_dimensional_balls_end_where_rationals_say(
    radius: float, center: float, norm: Norm, ulps: int
) -> None:
    point = center + radius
    for _ in range(abs(ulps)):
        point = math.nextafter(point, math.copysign(math.inf, ulps))
    expected = abs(Fraction(point) - Fraction(center)) <= Fraction(radius)
    region = Ball(norm, [center], radius)
    assert region.contains(np.array([point])) is expected
    assert region.contains([Fraction(point)]) is expected
    end = [Fraction(center) + Fraction(radius)]
    assert region.contains(end)
    assert not region.contains([end[0] + Fraction(1, 10**40)])


def test_rational_points_on_the_sphere_are_inside() -> None:
    region = Ball("l2", [0.0, 0.0], 5.0)
    assert region.contains([Fraction(3), Fraction(4)])
    assert region.contains(np.array([3.0, -4.0]))
    assert not region.contains(np.array([3.0, math.nextafter(4, 5)]))
    assert region.contains([Fraction(15, 13), Fraction(-4)]) is True
    assert region.contains([Fraction(25, 13), Fraction(60, 13)])
    assert not region.contains([Fraction(25, 13) + Fraction(1, 10**30), Fraction(60, 13)])
    tenths = Ball("l1", [0.0] * 10, 1.0)
    # Ten times the float 0.1 is above 1, whatever a float sum says.
    assert not tenths.contains(np.full(10, 0.1))
    assert tenths.contains([Fraction(1, 10)] * 10)


@pytest.mark.parametrize("norm", NORMS)
def test_membership_in_tiny_balls_does_not_underflow(norm: Norm) -> None:
    region = Ball(norm, [0.0, 0.0], 1e-175)
    assert region.contains(np.array([1e-176, 0.0]))
    assert not region.contains(np.array([1e-170, 0.0]))


def test_clipped_ball_excludes_what_the_data_box_excludes() -> None:
    for norm in NORMS:
        region = Ball(norm, [0.5, 0.5], 1.0, 0.0, [1.0, 0.75])
        assert region.contains(np.array([1.0, 0.75]))
        assert not region.contains(np.array([math.nextafter(1, 2), 0.5]))
        assert not region.contains(np.array([0.5, -5e-324]))
        assert not region.contains([Fraction(1, 2), Fraction(-1, 10**99)])


@pytest.mark.parametrize("kind", KINDS)
def test_points_of_another_dimension_are_refused(kind: str) -> None:
    region = make(kind, np.random.default_rng(0), 3)
    for point in (np.zeros(2), [Fraction(0)] * 4):
        with pytest.raises(InputError, match="the region has 3"):
            region.contains(point)


# --- samples, projections, settling ----------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@CASES
@given(seed=st.integers(0, 10**6))
def test_samples_are_inside_up_to_rounding_and_follow_the_seed(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    region = make(kind, rng)
    points = region.sample(np.random.default_rng(seed), 50)
    assert points.shape == (50, region.size)
    assert max(outside_by(region, p) for p in points) <= 1e-12
    np.testing.assert_array_equal(region.sample(np.random.default_rng(seed), 50), points)
    wide = np.max(region.hi - region.lo) > 1e-3
    if wide and not isinstance(region, Polytope):
        assert len({p.tobytes() for p in points}) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_samples_fill_the_region(kind: str) -> None:
    rng = np.random.default_rng(1)
    center = np.zeros(2)
    region: Region = Box(center - 1, center + 1)
    if kind == "polytope":
        region = Polytope([[1.0, 1.0]], [0.5], center - 1, center + 1)
    elif kind != "box":
        region = Ball(kind, center, 1.0, -0.9, 0.9)  # type: ignore[arg-type]
    points = region.sample(rng, 2000)
    angles = rng.uniform(0, 2 * math.pi, 12)
    for v in np.column_stack([np.cos(angles), np.sin(angles)]):
        best = oracle_support(region, v)
        assert best - 0.35 < float(np.max(points @ v)) <= best + 1e-12


@pytest.mark.parametrize("kind", KINDS)
@CASES
@given(seed=st.integers(0, 10**6), reach=st.sampled_from([0.1, 1.0, 20.0]))
def test_projection_is_inside_nearest_and_idempotent(kind: str, seed: int, reach: float) -> None:
    rng = np.random.default_rng(seed)
    region = make(kind, rng, int(rng.integers(1, 5)))
    # Alternating projections onto a polytope only come close, and slowly from far away.
    tolerance = 1e-9
    if kind == "polytope":
        tolerance, reach = 1e-3, min(reach, 1.0)
    points = region.center + reach * rng.normal(size=(6, region.size))
    near = region.project(points)
    for p, x in zip(points, near, strict=True):
        assert outside_by(region, x) <= 1e-9 * (1 + reach)
        # x is the nearest point iff p - x is normal to the region at x.
        normal = p - x
        gap = oracle_support(region, normal) - float(normal @ x)
        assert gap <= tolerance * (1 + reach) ** 2
        if exactly_inside(region, p):
            np.testing.assert_allclose(x, p, atol=1e-12)
    np.testing.assert_allclose(region.project(near), near, atol=1e-9 * (1 + reach))


def test_projection_onto_a_polytope_does_not_end_while_it_stalls() -> None:
    # Alternating projections rest at (1, -1) for some rounds while their corrections still grow.
    # (4, 1) - (1, -1/2) = 3/2 (1, 0) + 3/2 (1, 1) is normal to x <= 1 and x + y <= 1/2.
    region = Polytope([[2.0, 2.0]], [1.0], [-1, -1], [1, 1])
    near = region.project(np.array([[4.0, 1.0]]))
    np.testing.assert_allclose(near, [[1.0, -0.5]], atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
@CASES
@given(seed=st.integers(0, 10**6))
def test_settled_points_are_exactly_inside_and_representable(
    kind: str, dtype: type, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    region = make(kind, rng)
    if isinstance(region, Ball) and region.radius == 0 and dtype is np.float32:
        return
    point = region.project(region.center[None] + 3 * rng.normal(size=(1, region.size)))[0]
    settled = region.settle(point, dtype)
    if settled is None:
        # Only a region without room for a point of that type may give up.
        widths = region.hi - region.lo
        assert np.min(widths) < 1e-6
        return
    assert exactly_inside(region, settled)
    assert settled.dtype == np.float64
    np.testing.assert_array_equal(settled.astype(dtype).astype(np.float64), settled)
    assert np.max(np.abs(settled - point)) <= 2e-3 * (1 + np.max(np.abs(point)))


def test_points_inside_settle_where_they_are() -> None:
    region = Ball("l2", [0.5, 0.5], 0.4, 0.0, 1.0)
    point = np.array([0.3, 0.6])
    same = region.settle(point)
    assert same is not None
    np.testing.assert_array_equal(same, point)
    single = region.settle(point, np.float32)
    assert single is not None
    np.testing.assert_array_equal(single, point.astype(np.float32).astype(np.float64))


def test_settling_gives_up_where_no_float32_exists() -> None:
    assert Box([0.1], [0.1]).settle(np.array([0.1]), np.float32) is None
    # Both neighbours of 0.1 in float32 are farther than 1e-9 away.
    assert Ball("linf", [0.1], 1e-10).settle(np.array([0.1]), np.float32) is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inner_bounds_round_inwards(dtype: type) -> None:
    rng = np.random.default_rng(5)
    region = Box(rng.normal(size=50) - 2, rng.normal(size=50) + 2)
    lo, hi = region.inner_bounds(dtype)
    assert np.all((region.lo <= lo) & (hi <= region.hi))
    np.testing.assert_array_equal(lo.astype(dtype), lo)
    below = np.nextafter(lo.astype(dtype), dtype(-np.inf)).astype(np.float64)
    assert np.all(below < region.lo)
    above = np.nextafter(hi.astype(dtype), dtype(np.inf)).astype(np.float64)
    assert np.all(above > region.hi)


@CASES
@given(center=st.floats(-10, 10), radius=st.floats(0, 5))
def test_bounding_box_of_a_ball_is_outward_and_tight(center: float, radius: float) -> None:
    region = Ball("l2", [center], radius)
    lo, hi = Fraction(center) - Fraction(radius), Fraction(center) + Fraction(radius)
    found = float(region.lo[0]), float(region.hi[0])
    assert Fraction(found[0]) <= lo
    assert Fraction(math.nextafter(found[0], math.inf)) > lo
    assert Fraction(found[1]) >= hi
    assert Fraction(math.nextafter(found[1], -math.inf)) < hi


# --- polytopes -------------------------------------------------------------------------------


def test_polytope_centre_is_deep_inside() -> None:
    region = Polytope([[1.0, 1.0], [-1.0, 0.0]], [1.0, -0.25], [0, 0], [1, 1])
    assert exactly_inside(region, region.center)
    assert np.all(region.right - region.matrix @ region.center > 0.1)


def test_flat_polytope_has_points() -> None:
    # x + y = 1 as two inequalities.
    region = Polytope([[1.0, 1.0], [-1.0, -1.0]], [1.0, -1.0], [0, 0], [1, 1])
    np.testing.assert_allclose(region.support(np.array([[2.0, 1.0], [-1.0, -1.0]])), [2, -1])
    assert region.contains([Fraction(1, 3), Fraction(2, 3)])
    assert not region.contains([Fraction(1, 3), Fraction(2, 3) + Fraction(1, 10**20)])


@pytest.mark.parametrize("gap", [1e-9, 1e-3, 1.0, 1e3, 1e9])
def test_polytope_without_points_is_empty(gap: float) -> None:
    with pytest.raises(EmptyRegionError, match="empty"):
        Polytope([[1.0, 1.0], [-1.0, -1.0]], [1.0, -1.0 - gap], [0, 0], [1, 1])
    with pytest.raises(EmptyRegionError, match="empty"):
        Polytope([[1.0, 1.0]], [-gap], [0, 0], [1, 1])


def test_inequality_without_inputs_makes_a_polytope_empty_or_says_nothing() -> None:
    with pytest.raises(EmptyRegionError, match="empty"):
        Polytope([[0.0, 0.0]], [-1.0], [0, 0], [1, 1])
    region = Polytope([[0.0, 0.0], [1.0, 0.0]], [1.0, 0.5], [0, 0], [1, 1])
    assert region.support(np.array([[1.0, 1.0]]))[0] == pytest.approx(1.5)


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("linf", [0.0], -1.0), "radius is -1.0; expected a finite number >= 0"),
        (("l2", [0.0], math.nan), "radius is nan"),
        (("l1", [0.0], math.inf), "radius is inf"),
        (("l3", [0.0], 1.0), "norm is 'l3'; expected linf, l2 or l1"),
        (("l2", [0.0, math.nan], 1.0), "input is nan at position 1"),
        (("l2", [0.0, 0.0], 1.0, [0.0, 0.0, 0.0]), r"clip \(lower\) has 3 values; expected 2"),
        (("l2", [0.0, 0.0], 1.0, None, [math.inf, 1.0]), r"clip \(upper\) is inf at position 0"),
        (("l2", [2.0, 0.0], 1.5, -1.0, 1.0), "input 0 = 2 lies outside the data box"),
        (("l1", [0.0, -2.0], 1.5, -1.0, 1.0), "input 1 = -2 lies outside the data box"),
    ],
)
def test_unusable_balls_are_refused(arguments: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        Ball(*arguments)
    assert "\n" not in str(caught.value)


def test_empty_regions_say_so() -> None:
    with pytest.raises(EmptyRegionError, match=r"input 1 has bounds \[1, 0\]"):
        Box([0.0, 1.0], [1.0, 0.0])
    with pytest.raises(EmptyRegionError, match="has no point in the data box"):
        Ball("linf", [3.0], 1.0, -1.0, 1.0)
    with pytest.raises(EmptyRegionError):
        Ball("linf", [0.0], 1.0, 0.5, -0.5)


def test_linf_ball_around_a_point_outside_the_data_box_is_a_box() -> None:
    region = Ball("linf", [1.2, 0.0], 0.5, -1.0, 1.0)
    np.testing.assert_allclose(region.lo, [0.7, -0.5])
    np.testing.assert_allclose(region.hi, [1.0, 0.5])
    assert region.contains(region.center)


@pytest.mark.parametrize(
    ("lo", "hi", "reason"),
    [
        ([0.0, 0.0], [1.0, 1.0, 1.0], "upper bound has 3 values; expected 2"),
        ([math.nan], [1.0], "lower bound is nan"),
        ([0.0], [math.inf], "upper bound is inf"),
    ],
)
def test_unusable_boxes_are_refused(lo: list[float], hi: list[float], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Box(lo, hi)


@pytest.mark.parametrize(
    ("matrix", "right", "reason"),
    [
        ([[1.0, 1.0, 1.0]], [0.0], "polytope matrix of shape"),
        ([[1.0, math.nan]], [0.0], "polytope matrix of shape"),
        ([[1.0, 1.0], [1.0, 0.0]], [0.0, 1.0, 2.0], "right-hand side has 3 values"),
        ([[1.0, 1.0]], [math.nan], "right-hand side is nan"),
    ],
)
def test_unusable_polytopes_are_refused(
    matrix: list[list[float]], right: list[float], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        Polytope(matrix, right, [0.0, 0.0], [1.0, 1.0])


def test_regions_do_not_share_memory_with_their_arguments() -> None:
    lo, hi = np.zeros(2), np.ones(2)
    region = Box(lo, hi)
    lo[0] = 5.0
    assert region.lo.tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        region.lo[0] = 5.0


@pytest.mark.parametrize("kind", KINDS)
def test_plain_data_describes_the_region(kind: str) -> None:
    region = make(kind, np.random.default_rng(2), 3)
    data = region.to_dict()
    name = data.pop("kind")
    again: Region
    if name == "ball":
        again = Ball(data["norm"], data["center"], data["radius"], data["clip_lo"], data["clip_hi"])
    else:
        again = {"box": Box, "polytope": Polytope}[name](**data)
    rows = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_array_equal(again.support(rows), region.support(rows))
    assert "\n" not in region.describe()


def test_points_beyond_float32_are_settled_as_float64_only() -> None:
    region = Ball("l1", np.array([1e39, 2.0]), 1.0)
    assert region.settle(np.array([1e39, 2.5]), np.float32) is None
    assert region.settle(np.array([1e39, 2.5])) is not None
    on_grid = Box([1e39], [3e39], grid=Grid(1e39))
    assert on_grid.settle(np.array([2e39]), np.float32) is None
    np.testing.assert_array_equal(on_grid.settle(np.array([2e39])), [2e39])


def test_points_of_an_l0_ball_beyond_float32_are_settled_inside_its_range() -> None:
    region = L0Ball([0.0, 0.0], 1, -1e50, 1e50)
    settled = region.settle(np.array([1e45, 0.0]), np.float32)
    assert settled is not None and region.contains(settled)
    np.testing.assert_array_equal(settled, [float(np.finfo(np.float32).max), 0.0])
    np.testing.assert_array_equal(region.settle(np.array([1e45, 0.0])), [1e45, 0.0])
    # An input that does not change cannot be rounded.
    assert L0Ball([0.1, 0.0], 1, -1.0, 1.0).settle(np.array([0.1, 0.5]), np.float32) is None
    # One that changes is rounded to the inside of its range.
    narrow = L0Ball([0.0, 0.0], 1, 0.0, 0.1)
    settled = narrow.settle(np.array([0.1, 0.0]), np.float32)
    assert settled is not None and 0.09999 < settled[0] <= 0.1 and narrow.contains(settled)
