"""Certificates about grid points: what is written is accepted, and what is accepted is true."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Grid
from bnncert.regions.grid import GridValues
from tests.brute_force import TinyNetwork
from tests.cli.diamond import DIAMOND
from tests.kernel.claims import accepted, pack, unpack
from tests.proofs.written import Written
from tests.strategies import few
from tests.test_grid_against_brute_force import binarised, grid_questions

KINDS = ("linf", "l1", "l2", "l0", "box", "polytope")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_accepted(kind: str, tmp_path: Path) -> None:
    written = Written(tmp_path / "proof")

    @few(8)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        net = data.draw(binarised()) if data.draw(st.booleans()) else None
        written.check(data.draw(grid_questions(kind, net)), "auto", "on the grid of step")

    check()
    written.conclude()


def claim(tmp_path: Path, radius: float, **settings: object) -> tuple[Path, bnncert.Network]:
    """A certificate for the point (1, 0), around which the quarter plane x0 > |x1| is class 0."""
    network, path = DIAMOND.build(), tmp_path / "proof"
    ball = bnncert.Ball("linf", [1.0, 0.0], radius, -2.0, 2.0, grid=Grid(1.0, -2.0))
    result = bnncert.verify(network, ball, 0, certificate=path)
    assert result.certificate is not None
    assert accepted(path, network) is not None
    return path, network


def test_a_proof_for_the_grid_is_none_for_the_reals_or_a_finer_grid(tmp_path: Path) -> None:
    path, network = claim(tmp_path, 0.9)
    first, *rest = unpack(path)
    for change in ("reals", "finer", "moved", "wider"):
        fields, arrays = dict(first.fields), dict(first.arrays)
        if change == "reals":
            del fields["grid"], arrays["grid_step"], arrays["grid_origin"]
            fields["radius"] = str(Fraction(0.9))
        elif change == "finer":
            arrays["grid_step"] = np.full(2, 0.25)
            fields["radius"] = str(Fraction(0.9))
        elif change == "moved":
            arrays["grid_origin"] = np.full(2, -2.6)
            fields["radius"] = str(Fraction(0.9))
        else:
            fields["radius"] = "1"
        changed = type(first)(first.name, fields, arrays)
        assert accepted(pack(tmp_path / change, [changed, *rest]), network) is None, change


def test_a_counterexample_between_two_values_is_rejected(tmp_path: Path) -> None:
    path, network = claim(tmp_path, 1.0)
    first, point = unpack(path)
    assert first.fields["verdict"] == "not_robust"
    # On the side of the rival that the counterexample is for.
    moved = {"point": np.array([0.5, np.copysign(0.75, point.arrays["point"][1])])}
    assert (
        accepted(pack(tmp_path / "a", [first, type(point)("point", point.fields, moved)]), network)
        is None
    )
    fields = {k: v for k, v in first.fields.items() if k != "grid"}
    arrays = {k: v for k, v in first.arrays.items() if not k.startswith("grid")}
    reals = type(first)(first.name, fields, arrays)
    # On the reals it is one.
    assert accepted(
        pack(tmp_path / "b", [reals, type(point)("point", point.fields, moved)]), network
    )


@pytest.mark.parametrize(
    "change",
    [
        {"grid": "float16"},
        {"grid": None},
        {"grid_step": np.zeros(2)},
        {"grid_step": np.full(2, -1.0)},
        {"grid_step": np.full(2, 1e-17)},
        {"grid_step": np.full(2, 1e-300)},
        {"grid_step": np.full(2, np.nan)},
        {"grid_step": np.ones(3)},
        {"grid_origin": np.full(2, 1e300)},
    ],
)
def test_bad_grids_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path, network = claim(tmp_path, 0.9)
    first, *rest = unpack(path)
    for name, value in change.items():
        if isinstance(value, np.ndarray):
            first.arrays[name] = value
        else:
            first.fields[name] = value
    assert accepted(pack(tmp_path / "changed", [first, *rest]), network) is None


def test_checker_and_regions_agree_about_the_values_of_a_grid(tmp_path: Path) -> None:
    """Centres and data boxes as 8-bit data have them, in both floating-point types."""
    from bnncert.kernel.space import StatedGrid

    generator = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        levels = generator.integers(0, 256, 40)
        centre = (levels.astype(dtype) / dtype(127.5) - dtype(1)).astype(np.float64)
        known = [np.full(40, -1.0), np.full(40, 1.0), centre]
        values = GridValues(Grid(1 / 127.5, -1.0), 40, known)
        grid = StatedGrid(
            values.step.tolist(),
            values.origin.tolist(),
            values.dtype == np.float32,
            [x.tolist() for x in known],
        )
        for i in range(40):
            grid._places.append(grid._known_values(i))
        for k in range(-3, 260):
            mine = [grid.value(i, k) for i in range(40)]
            assert np.array_equal(values.at(np.full(40, float(k))), mine)
        for bound in generator.uniform(-1, 1, 30).tolist():
            low = values.at(values.first_from(np.full(40, bound)))
            high = values.at(values.last_until(np.full(40, bound)))
            exact = Fraction(bound)
            assert [grid.beyond(i, exact, 1) for i in range(40)] == low.tolist()
            assert [grid.beyond(i, exact, -1) for i in range(40)] == high.tolist()


def test_binarised_pixels_have_certificates_by_grid_distances(tmp_path: Path) -> None:
    """Two flips of one pixel each do not fit 1.5 pixels; on the reals 0.1 each would fit."""
    net = TinyNetwork(
        (np.eye(3), np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])),
        (np.full(3, 0.1), np.zeros(2)),
        "plus",
    )
    network, path = net.build(), tmp_path / "proof"
    asked = {"method": "propagation", "certificate": path}
    on_grid = bnncert.Ball("l1", [0.0, 0.0, 0.0], 1.5, -3.0, 3.0, grid=1.0)
    result = bnncert.verify(network, on_grid, 0, **asked)  # type: ignore[arg-type]
    assert result.status == "robust"
    assert result.certificate is not None
    assert accepted(path, network) is not None
    real = bnncert.Ball("l1", [0.0, 0.0, 0.0], 1.5, -3.0, 3.0)
    assert bnncert.verify(network, real, 0, method="propagation").status == "not_robust"


def test_sums_of_grid_values_exclude_signs_without_a_tree(tmp_path: Path) -> None:
    """Two inputs of -1 or 1 have no sum between 0.5 and 1.5, the only sums of the other class."""
    net = TinyNetwork(
        (np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([[-1.0, -1.0], [0.0, 0.0]])),
        (np.array([-0.5, 1.5]), np.array([1.0, 0.0])),
        "plus",
    )
    network, path = net.build(), tmp_path / "proof"
    box = bnncert.Box([-1.0, -1.0], [1.0, 1.0], Grid(2.0, -1.0))
    assert bnncert.verify(network, box, 0, certificate=path).certificate is not None
    assert accepted(path, network) is not None
    first, *rest = unpack(path)
    assert all(section.name != "branched" for section in rest)
    first.arrays["grid_step"] = np.ones(2)
    assert accepted(pack(tmp_path / "finer", [first, *rest]), network) is None
