"""Certificates of explanations: accepted as written, and never for a claim that is false."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.kernel.container import Section
from bnncert.questions.explain.explanation_answer import Explanation
from tests.brute_force import (
    TinyNetwork,
    is_reached,
    last_layers_at,
    reachable_last_layers,
    rival_target,
    scores_of,
)
from tests.kernel.claims import REFUSALS, accepted, pack, unpack
from tests.random_questions import random_network
from tests.strategies import few


def drawn(
    seed: int, sign_zero: str, ties: str, path: Path
) -> tuple[TinyNetwork, Explanation] | None:
    """Return a network and an explanation with kept inputs, whose certificate is in a file."""
    rng = np.random.default_rng(seed)
    for _ in range(8):
        size = int(rng.integers(2, 5))
        net = random_network(rng, size, sign_zero)
        image = rng.integers(-2, 3, size) / 2
        grid = bnncert.Grid(0.5) if rng.random() < 0.5 else None
        ball = bnncert.Ball("linf", image, float(rng.integers(1, 5)) / 2, -1, 1, grid=grid)
        network = net.build()
        try:
            found = bnncert.explain(network, ball, ties=ties, timeout=60, certificate=path)
        except bnncert.InputError:
            continue
        if found.kept:
            return net, found
    return None


class Judge:
    """Decides by brute force whether the claim in a file is true."""

    def __init__(self, net: TinyNetwork, claim: Section) -> None:
        details, arrays = claim.fields["details"], claim.arrays
        self.net, self.image, self.kept = net, arrays["center"], arrays["kept"].tolist()
        self.needed = arrays["needed"].tolist()
        self.grid = details["region"].get("grid")
        radius = float(Fraction(details["region"]["radius"]))
        ball = bnncert.Ball("linf", self.image, radius, arrays["clip_lo"], arrays["clip_hi"])
        self.lo, self.hi = ball.lo, ball.hi
        self.steps = (arrays.get("grid_step"), arrays.get("grid_origin"))
        rivals = [k for k in range(net.weights[-1].shape[0]) if k != details["label"]]
        self.targets = [rival_target(details["label"], k, details["ties"]) for k in rivals]

    def can_change(self, kept: list[int]) -> bool:
        lo, hi = self.lo.copy(), self.hi.copy()
        lo[kept] = hi[kept] = self.image[kept]
        if self.grid is None:
            lasts = reachable_last_layers(self.net, bnncert.Box(lo, hi))
        else:
            columns = [self.values(i, lo[i], hi[i]) for i in range(lo.size)]
            points = (tuple(map(Fraction, x)) for x in product(*columns))
            lasts = set().union(*(last_layers_at(self.net, x) for x in points))
        scores = scores_of(self.net, lasts)
        return any(is_reached(target, s) for target in self.targets for s in scores)

    def values(self, i: int, low: float, high: float) -> list[float]:
        step, origin = (float(v[i]) for v in self.steps if v is not None)
        first, last = int((low - origin) / step) - 2, int((high - origin) / step) + 2
        return [v for k in range(first, last + 1) if low <= (v := origin + step * k) <= high]

    def is_true(self) -> bool:
        if self.can_change(self.kept):
            return False
        return all(self.can_change([k for k in self.kept if k != i]) for i in self.needed)


ways = given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["plus", "minus", "either"]),
    st.sampled_from(["violation", "robust"]),
)


@few(5)
@ways
def test_certificates_are_accepted_and_changed_ones_only_if_they_are_true(
    tmp_path_factory: pytest.TempPathFactory, seed: int, sign_zero: str, ties: str
) -> None:
    folder = tmp_path_factory.mktemp("explanation")
    made = drawn(seed, sign_zero, ties, folder / "a.cert")
    if made is None:
        return
    net, found = made
    network = net.build()
    report = check(folder / "a.cert", network)
    assert report.verdict == "explanation"
    assert f"the class is {found.label}" in report.statement
    assert Judge(net, unpack(folder / "a.cert")[0]).is_true()
    rng = np.random.default_rng(seed)
    for _ in range(25):
        sections = unpack(folder / "a.cert")
        change(sections, rng)
        if accepted(pack(folder / "b.cert", sections), network) is not None:
            assert Judge(net, sections[0]).is_true(), (sections[0].fields, sections[0].arrays)


def change(sections: list[Section], rng: np.random.Generator) -> None:
    """Change the claim, often together with the part, so that they agree again."""
    claim = sections[0]
    names = sorted(claim.arrays)
    name = names[int(rng.integers(len(names)))]
    array = claim.arrays[name]
    details = claim.fields["details"]
    kind = int(rng.integers(4))
    if kind == 0 and array.size:
        array[int(rng.integers(array.size))] += rng.choice([-1, 1])
    elif kind == 1:
        size = int(rng.integers(array.size + 1))
        claim.arrays[name] = array[:size]
    elif kind == 2:
        details["label"] += int(rng.choice([-1, 1]))
        sections[1].fields["property"]["label"] = details["label"]
    else:
        details["ties"] = "robust" if details["ties"] == "violation" else "violation"
        sections[1].fields["property"]["ties"] = details["ties"]
    if rng.random() < 0.7:
        agree(sections)


def agree(sections: list[Section]) -> None:
    """Give the part the region that the claim needs, if that is possible."""
    arrays, part = sections[0].arrays, sections[1].arrays
    size = part["center"].size
    if any(arrays[name].size != size for name in ("center", "clip_lo", "clip_hi")):
        return
    kept = arrays["kept"]
    kept = kept[(kept >= 0) & (kept < size)]
    for name in ("clip_lo", "clip_hi"):
        part[name] = arrays[name].copy()
        part[name][kept] = arrays["center"][kept]
    part["center"] = arrays["center"].copy()
    part |= {name: arrays[name] for name in ("grid_step", "grid_origin") if name in arrays}


@pytest.fixture
def network() -> bnncert.Network:
    # The class is 0 if two of a + b, a - b and b + c are >= 0.
    weights = [[[1, 1, 0], [1, -1, 0], [0, 1, 1]], [[1, 1, 1], [-1, -1, -1]]]
    return bnncert.Network.from_arrays(weights, [[0] * 3, [0, 0]], input_lo=-1, input_hi=1)


def explained(network: bnncert.Network, path: Path) -> list[Section]:
    found = bnncert.explain(network, [0.5, 0, 0.25], timeout=60, certificate=path)
    assert found.minimal and 0 < len(found.kept) < 3
    return unpack(path)


def test_the_statement_in_words(network: bnncert.Network, tmp_path: Path) -> None:
    explained(network, tmp_path / "a.cert")
    report = check(tmp_path / "a.cert", network)
    assert report.statement.split("; SHA-256: ")[0] == (
        "with 2 of 3 inputs as in the image and all others anywhere in [-1, 1], the class is 0; "
        "each of the 2 is needed (real arithmetic, sign(0) = +1, a tie is a violation)"
    )
    assert report.assumptions["data_box"] == "inputs are anywhere in [-1, 1]"


def test_a_small_radius_is_stated(network: bnncert.Network, tmp_path: Path) -> None:
    # A ball of radius 0 is proved easily; the words must not claim the data box.
    sections = explained(network, tmp_path / "a.cert")
    claim, part = sections[0], sections[1]
    claim.fields["details"]["region"]["radius"] = part.fields["radius"] = "0"
    for name in ("needed", "targets", "changed", "values"):
        claim.arrays[name] = claim.arrays[name][:0]
    claim.arrays["starts"] = claim.arrays["starts"][:1]
    report = accepted(pack(tmp_path / "b.cert", sections), network)
    assert report is None or "within 0.0 of the image, in [-1, 1]" in report.statement


def test_blocks_in_words(tmp_path: Path) -> None:
    # The class is 0 if the two pixels of the left column are bright; the others do not count.
    net = bnncert.Network.from_arrays(
        [[[1, 0, 1, 0]], [[1], [-1]]], [[-1.25], [0, 0]], input_lo=0, input_hi=1
    )
    path = tmp_path / "a.cert"
    found = bnncert.explain(net, [1, 0, 1, 1], blocks=1, timeout=60, certificate=path)
    assert found.kept_units == (0, 2) and found.minimal
    shown = "with 2 of 4 blocks of 1 x 1 pixels (inputs 2 x 2) as in the image and all others"
    assert check(path, net).statement.startswith(shown)
    found = bnncert.explain(net, [1, 0, 1, 1], blocks=2, timeout=60, certificate=path)
    assert found.kept_units == (0,) and found.kept == (0, 1, 2, 3) and found.minimal
    assert check(path, net).statement.startswith(
        "with all 1 blocks of 2 x 2 pixels (inputs 2 x 2) as in the image, the class is 0; this "
        "block is needed if it may be anywhere in [0, 1]"
    )
    # The witness of the block changes inputs that a claim about single inputs keeps.
    sections = unpack(path)
    for blocks in (None, {"side": 1, "shape": [1, 2, 2, 1]}, {"side": 2, "shape": [1, 1, 4, 1]}):
        sections[0].fields["details"]["blocks"] = blocks
        assert accepted(pack(tmp_path / "b.cert", sections), net) is None


CHANGES: dict[str, dict[str, Any]] = {
    "blocks of nothing": {"blocks": {"side": 0, "shape": [1, 1, 3, 1]}},
    "blocks of another image": {"blocks": {"side": 1, "shape": [1, 2, 2, 1]}},
    "blocks without a shape": {"blocks": {"side": 1}},
    "blocks of three sizes": {"blocks": {"side": 1, "shape": [1, 3, 1]}},
    "blocks of floats": {"blocks": {"side": 1.0, "shape": [1, 1, 3, 1]}},
    "blocks of a text": {"blocks": "pixels"},
    "larger blocks": {"blocks": {"side": 2, "shape": [1, 1, 3, 1]}},
    "a list of exact numbers": {"exact": []},
    "an exact number of no change": {"exact": {"99": "1"}},
    "an exact number besides another one": {"exact": {"0": "1/3"}},
    "a label that is a float": {"label": 0.0},
    "a label that is a truth value": {"label": False},
    "an unknown grid": {"region": {"region": "linf", "radius": "2", "grid": "float16"}},
    "a radius that is no number": {"region": {"region": "linf", "radius": "wide"}},
    "a larger radius": {"region": {"region": "linf", "radius": "4"}},
    "a ball of another norm": {"region": {"region": "l1", "radius": "2"}},
    "no region": {"region": None},
    "another field": {"more": 1},
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_details_are_refused(network: bnncert.Network, tmp_path: Path, name: str) -> None:
    sections = explained(network, tmp_path / "a.cert")
    sections[0].fields["details"] |= CHANGES[name]
    with pytest.raises(REFUSALS):
        check(pack(tmp_path / "b.cert", sections), network)


def test_missing_repeated_and_other_parts_are_refused(
    network: bnncert.Network, tmp_path: Path
) -> None:
    claim, *part = explained(network, tmp_path / "a.cert")
    other = tmp_path / "other.cert"
    ball = bnncert.Ball("linf", [0.5, 0, 0.25], 0.125, -1, 1)
    assert bnncert.verify(network, ball, 0, timeout=60, certificate=other).status == "robust"
    point = bnncert.Ball("linf", [-0.5, 0, 0.25], 0)
    broken = tmp_path / "broken.cert"
    assert bnncert.verify(network, point, 0, certificate=broken).status == "not_robust"
    for sections in ([claim], [claim, *part, *part], [claim, *unpack(other)], [*part, claim]):
        with pytest.raises(REFUSALS):
            check(pack(tmp_path / "b.cert", sections), network)
    with pytest.raises(RejectedError, match="another statement"):
        check(pack(tmp_path / "b.cert", [claim, *unpack(broken)]), network)
    with pytest.raises(UnreadableError):
        check(pack(tmp_path / "b.cert", [claim, claim, *part]), network)


def test_another_network_is_refused(network: bnncert.Network, tmp_path: Path) -> None:
    explained(network, tmp_path / "a.cert")
    weights = [[[1, 1, 0], [1, -1, 0], [0, 1, 1]], [[1, 1, 1], [-1, -1, 1]]]
    other = bnncert.Network.from_arrays(weights, [[0] * 3, [0, 0]], input_lo=-1, input_hi=1)
    with pytest.raises(RejectedError, match="another network"):
        check(tmp_path / "a.cert", other)
    with pytest.raises(RejectedError, match="sign-zero plus"):
        check(tmp_path / "a.cert", network, sign_zero="minus")


def test_wrong_witnesses_are_refused(network: bnncert.Network, tmp_path: Path) -> None:
    sections = explained(network, tmp_path / "a.cert")
    arrays = sections[0].arrays
    assert arrays["changed"].tolist() == arrays["kept"].tolist()
    changes = {
        "it has the class of the image": {"values": arrays["center"][arrays["changed"]]},
        "outside": {"values": 9 * arrays["values"]},
        "for no target": {"targets": arrays["targets"] + 1},
        "a kept input changes": {"changed": arrays["changed"][::-1]},
        "needed but not kept": {"kept": arrays["kept"][:1]},
        "starts in disorder": {"starts": arrays["starts"][::-1]},
    }
    for name, change_ in changes.items():
        wrong = [Section("claim", sections[0].fields, arrays | change_), *sections[1:]]
        with pytest.raises(REFUSALS):
            print(name, check(pack(tmp_path / "b.cert", wrong), network))


def test_the_grid_is_stated(network: bnncert.Network, tmp_path: Path) -> None:
    """A coarse grid leaves few values, or none besides the image: the words have its step."""
    image = [0.5, 0, 0.25]
    for step in (0.25, 0.125):
        ball = bnncert.Ball("linf", image, 2, -1, 1, grid=bnncert.Grid(step))
        bnncert.explain(network, ball, timeout=60, certificate=tmp_path / "a.cert")
        words = f"in [-1, 1], on the grid of step {step} from 0 in float32"
        assert words in check(tmp_path / "a.cert", network).statement
