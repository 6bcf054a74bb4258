"""The pixels of an image: the checker beside the regions, and beside loops over all inputs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.kernel.claims.union import pixel_inputs
from bnncert.regions.pictures import pixel_inputs as searched
from tests.every_mode import few

SHAPES = [
    *itertools.product((1, 3, 5, 7)),
    *itertools.product((1, 2, 3, 6), repeat=2),
    *itertools.product((1, 2, 3, 5), repeat=3),
    *itertools.product((1, 2, 3), repeat=4),
    (25,), (24,), (36,), (75,), (108,), (784,), (1, 784), (3072,), (1, 3, 32, 32), (0,),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_both_sides_find_the_same_pixels(shape: tuple[int, ...]) -> None:
    ours, theirs = pixel_inputs(shape), searched(shape)
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        np.testing.assert_array_equal(ours, theirs)
        # Every input is a value of one pixel.
        assert sorted(ours.ravel().tolist()) == list(range(int(np.prod(shape))))


def by_loops(shape: tuple[int, ...]) -> list[list[list[int]]] | None:
    """Return the inputs of every pixel, counted one by one in the order of the input."""
    sizes = [n for n in shape if n > 1]
    total = 1
    for n in shape:
        total *= n
    if len(sizes) == 2:
        order, (height, width, channels) = "yxc", (*sizes, 1)
    elif len(sizes) == 3 and sizes[0] == 3:
        order, (channels, height, width) = "cyx", sizes
    elif len(sizes) == 3 and sizes[2] == 3:
        order, (height, width, channels) = "yxc", sizes
    else:
        for channels in (1, 3):
            sides = [n for n in range(5, total + 1) if channels * n * n == total]
            if sides:
                order, height, width = "cyx", sides[0], sides[0]
                break
        else:
            return None
    found = [[[-1] * channels for _ in range(width)] for _ in range(height)]
    counts = {"y": height, "x": width, "c": channels}
    for number, place in enumerate(itertools.product(*(range(counts[axis]) for axis in order))):
        at = dict(zip(order, place, strict=True))
        found[at["y"]][at["x"]][at["c"]] = number
    return found


@few(300)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 25, 36, 75]), min_size=1, max_size=4))
def test_pixels_are_counted_in_the_order_of_the_input(shape: list[int]) -> None:
    if np.prod(shape) > 3000:
        shape = shape[:1]
    found = pixel_inputs(tuple(shape))
    assert (None if found is None else found.tolist()) == by_loops(tuple(shape))
