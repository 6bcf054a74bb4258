"""The checker and the regions find the pixels of an image independently of each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bnncert.checking.rules.image_layout import pixel_inputs
from bnncert.pictures import pixel_inputs as searched

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
