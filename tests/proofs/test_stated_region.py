"""A region that is read back from its statement is the same region, or a larger one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import bnncert
from bnncert.proofs.claims import stated_region
from bnncert.proofs.writing import region_section
from tests.kernel.random_claims import with_few_values
from tests.random_questions import random_region


@pytest.mark.parametrize("kind", ["box", "linf", "l1", "l2", "polytope"])
@pytest.mark.parametrize("on_grid", [False, True])
def test_a_region_is_that_of_its_statement(kind: str, on_grid: bool) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        region = random_region(rng, kind, 2)
        if on_grid:
            region = with_few_values(rng, region)
        if isinstance(region, bnncert.L0Ball) or (kind == "polytope" and region.values is not None):
            # Parts of claims have no such regions.
            continue
        stated = region_section(region)
        again = region_section(stated_region(stated))
        for section in (again, stated) if region.values is not None else ():
            # The type of the numbers of a grid follows from numbers that a statement does not have.
            section.fields.pop("grid")
        if region.values is not None and "radius" in stated.fields:
            # The radius has grown by the rounding of the grid's values, and grows again.
            radii = [Fraction(section.fields.pop("radius")) for section in (again, stated)]
            assert radii[1] <= radii[0] <= radii[1] + Fraction(1, 10**4)
        assert again.fields == stated.fields
        assert again.arrays.keys() == stated.arrays.keys()
        for name, numbers in stated.arrays.items():
            assert np.array_equal(again.arrays[name], numbers), name
