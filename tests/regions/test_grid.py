"""Grids: their values, the radius in steps, and rounding into balls."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from bnncert import Ball, Box, Grid, InputError, L0Ball

PIXELS = Grid(1 / 127.5, -1.0)


def image(dtype: type = np.float32) -> np.ndarray:
    """All grey levels, as the data have them: rounded after every operation."""
    levels = np.arange(256, dtype=dtype)
    return (levels / dtype(127.5) - dtype(1)).astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_pixel_is_one_grey_level_to_both_sides(dtype: type) -> None:
    centre = image(dtype)
    ball = Ball("linf", centre, 1 / 127.5, -1.0, 1.0, grid=PIXELS)
    assert np.array_equal(ball.center, centre)
    assert ball.values is not None
    width = np.rint((ball.hi - ball.lo) * 127.5)
    assert np.array_equal(width, np.where((centre == -1) | (centre == 1), 1, 2))
    assert ball.lo[0] == -1.0
    assert ball.hi[255] == 1.0
    assert ball.contains(ball.lo)
    assert ball.contains(ball.hi)


@pytest.mark.parametrize("norm", ["linf", "l1"])
def test_a_radius_between_two_steps_is_that_of_the_smaller_one(norm: str) -> None:
    for radius, steps in ((1.7, 1), (0.99, 0), (3.0, 3), (0.0, 0)):
        ball = Ball(norm, [4.0, 9.0], radius, 0.0, 255.0, grid=1.0)  # type: ignore[arg-type]
        assert np.array_equal(ball.hi, [4.0 + steps, 9.0 + steps])
        assert ball.radius == steps
        assert ball.stated_radius == radius


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_pixels_as_far_as_the_radius_are_inside_and_others_are_not(norm: str) -> None:
    centre = image()[100:112]
    power = 1 if norm == "l1" else 2
    for count in (1, 2, 5, 9):
        radius = count ** (1 / power) / 127.5
        ball = Ball(norm, centre, radius, -1.0, 1.0, grid=PIXELS)  # type: ignore[arg-type]
        moved = (np.arange(101, 113) / 127.5 - 1).astype(np.float32).astype(np.float64)
        for k in range(12):
            point = np.where(np.arange(12) < k, moved, centre)
            assert ball.contains(point) == (k <= count)


def test_rounded_points_are_grid_points_of_the_ball() -> None:
    generator = np.random.default_rng(0)
    centre = image()[generator.integers(0, 256, 30)]
    for norm, steps in (("linf", 3), ("l1", 7), ("l2", 2.5)):
        ball = Ball(norm, centre, steps / 127.5, -1.0, 1.0, grid=PIXELS)  # type: ignore[arg-type]
        points = ball.sample(generator, 40)
        assert all(ball.contains(p) for p in points)
        assert np.unique(points, axis=0).shape[0] > 5
        far = ball.project(generator.uniform(-1, 1, size=(40, 30)))
        assert all(ball.contains(p) for p in far)
        assert not np.any(np.all(far == centre, axis=1))
        assert np.array_equal(ball.settle(centre, np.float32), centre)


def test_points_between_two_values_are_not_on_the_grid() -> None:
    box = Box([0.0, 0.0], [3.0, 3.0], grid=1.0)
    assert box.contains(np.array([1.0, 3.0]))
    assert box.contains([Fraction(1), Fraction(3)])
    assert not box.contains(np.array([1.0, 2.5]))
    assert not box.contains([Fraction(1), Fraction(7, 3)])
    assert not box.contains([Fraction(1), 3 - Fraction(1, 10**30)])
    assert not box.contains(np.array([1.0, 4.0]))


def test_a_finite_set_is_a_grid_in_a_box() -> None:
    ball = Ball("linf", [1.0, -1.0], 2.0, -1.0, 1.0, grid=Grid(2.0, -1.0))
    assert [ball.contains(np.array(p)) for p in ([1.0, 1.0], [-1.0, 1.0], [0.0, 1.0])] == [
        True,
        True,
        False,
    ]


def test_bounds_of_sums_are_those_of_grid_points() -> None:
    ball = Ball("linf", [4.0, 9.0], 1.7, 0.0, 255.0, grid=1.0)
    assert ball.support([[1.0, 1.0]])[0] == pytest.approx(15.0, abs=1e-9)


def test_a_centre_off_the_grid_is_noted() -> None:
    ball = Ball("l1", [0.3, 1.0], 1.0, 0.0, 2.0, grid=1.0)
    assert ball.notes == (
        "1 inputs of the centre are not on the grid, the first is input 0 = 0.3 between 0 and 1; "
        "the ball stays around it",
    )
    assert not Ball("l1", [0.0, 1.0], 1.0, grid=1.0).notes
    assert np.array_equal(ball.center, [0.0, 1.0])
    assert ball.contains(np.array([1.0, 1.0]))
    assert not ball.contains(np.array([0.0, 2.0]))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (0.0, "grid step is 0; expected a finite number > 0"),
        (-1.0, "grid step is -1; expected a finite number > 0"),
        (float("nan"), "grid step is nan; expected a finite number > 0"),
        (3.0, "grid step 3 is larger than the data box [-1, 1] of input 0"),
        (1e-9, "grid step 1e-09 of input 0 is too fine for inputs of size 1 in float32"),
    ],
)
def test_bad_steps_are_refused(step: float, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Ball("linf", [0.5], 0.1, -1.0, 1.0, grid=step)
    assert str(caught.value) == message


def test_regions_without_grid_points_are_empty() -> None:
    for norm in ("linf", "l1", "l2"):
        with pytest.raises(InputError, match="empty"):
            Ball(norm, [0.5, 0.4], 0.3, grid=1.0)  # type: ignore[arg-type]
    # Each input has a grid value near by, but no point has both.
    with pytest.raises(InputError, match="the grid has no point in the ball"):
        Ball("l1", [0.4, 0.4], 0.6, grid=1.0)


def test_support_of_few_changes_is_that_of_the_best_ones() -> None:
    """Against all choices of inputs that change, each to an end of its range."""
    generator = np.random.default_rng(3)
    for _ in range(20):
        centre, k = generator.uniform(-1, 1, 5), int(generator.integers(0, 6))
        ball = L0Ball(centre, k, -1.0, 1.0, within=float(generator.uniform(0, 1)))
        v = generator.standard_normal((3, 5)) * (generator.random((3, 5)) < 0.8)
        gains = np.maximum(v * (ball.hi - centre), v * (ball.lo - centre))
        best = v @ centre + np.sort(gains, axis=1)[:, 5 - k :].sum(axis=1)
        assert np.all(ball.support(v) >= best)
        assert np.allclose(ball.support(v), best, atol=1e-12)
        points = np.concatenate([ball.sample(generator, 20), ball.project(3 * v)])
        assert all(ball.contains(p) for p in points)
        assert np.all(points @ v.T <= ball.support(v) + 1e-12)


def test_membership_counts_the_inputs_that_differ() -> None:
    ball = L0Ball([0.1, 0.2, 0.3], 1, -1.0, 1.0, within=0.5)
    assert ball.contains(np.array([0.1, 0.2, 0.3]))
    assert ball.contains(np.array([0.6, 0.2, 0.3]))
    assert not ball.contains(np.array([0.7, 0.2, 0.3]))
    assert not ball.contains(np.array([0.6, 0.21, 0.3]))
    assert not ball.contains([Fraction(1, 10), Fraction(2, 10), Fraction(3, 10)])
    settled = ball.settle(np.array([0.11, 0.2, 0.9]))
    assert settled is not None
    assert settled.tolist()[:2] == [0.1, 0.2]
    # No number but 0.1 itself is unchanged, and it is not one of float32.
    assert ball.settle(np.array([0.11, 0.2, 0.9]), np.float32) is None
