"""What an accepted certificate says: every assumption is named, and no claim is about nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.engine.verdict import Counterexample
from bnncert.kernel import RejectedError, Report, UnreadableError, check
from bnncert.kernel.container import CONTENTS, Section
from bnncert.problem import Problem, Target, robustness, score_objective
from bnncert.proofs.writing import CertificateError, write_counterexample, write_proof
from tests.kernel.claims import REFUSALS, pack, unpack
from tests.kernel.conftest import Valid

#: Scores x, -x and -3 of the sign of one input.
WEIGHTS = [np.array([[1.0]]), np.array([[1.0], [-1.0], [0.0]])]
BIASES = [np.zeros(1), np.array([0.0, 0.0, -3.0])]

Z = np.zeros(0, dtype=np.int64)


def line(sign_zero: str = "plus", **box: Any) -> bnncert.Network:
    return bnncert.Network.from_arrays(WEIGHTS, BIASES, sign_zero=sign_zero, **box)  # type: ignore[arg-type]


def proved(path: Path, network: bnncert.Network, region: bnncert.Region, **settings: Any) -> Report:
    """Write a proof that class 0 wins, and check it."""
    options = {k: settings.pop(k) for k in ("arithmetic", "sign_zero") if k in settings}
    rivals, ties = settings.get("rivals", "all"), settings.get("ties", "violation")
    stated = network.with_sign_zero(options["sign_zero"]) if "sign_zero" in options else network
    write_proof(path, robustness(stated, region, 0, rivals, ties), stated, **options)
    return check(path, network, sign_zero=options.get("sign_zero"))


# -- assumptions --------------------------------------------------------------------------------


def test_a_certificate_for_another_sign_of_zero_needs_the_callers_word(tmp_path: Path) -> None:
    """At 0 class 0 wins if sign(0) = +1, and class 1 wins if it is -1."""
    path, region = tmp_path / "zero.cert", bnncert.Box([0.0], [1.0])
    model = line("minus")
    report = proved(path, model, region, sign_zero="plus")
    assert "sign(0) = +1" in report.statement
    assert report.assumptions["sign_zero"] == "plus"
    with pytest.raises(RejectedError, match=r"takes sign\(0\) = \+1, and the network has .* = -1"):
        check(path, model)
    with pytest.raises(RejectedError, match=r"the network has sign\(0\) = \+1 or -1"):
        check(path, model, sign_zero="either")
    with pytest.raises(bnncert.InputError, match="sign-zero"):
        check(path, model, sign_zero="zero")
    # The same without the field that overrides: only the hash says what is meant.
    sections = unpack(path)
    sections[0].fields["sign_zero"] = None
    with pytest.raises(RejectedError, match="--sign-zero plus"):
        check(pack(path, sections), model)
    assert check(path, model, sign_zero="plus").assumptions == report.assumptions
    assert check(path, line("plus")).assumptions == report.assumptions


def test_layers_with_different_signs_of_zero(tmp_path: Path) -> None:
    path, region = tmp_path / "mixed.cert", bnncert.Box([0.5], [1.0])
    network = bnncert.Network.from_arrays(
        [WEIGHTS[0], np.array([[1.0]]), WEIGHTS[1]], [BIASES[0], np.zeros(1), BIASES[1]]
    )
    first = replace(network.layers[0], sign_zero="minus")
    mixed = replace(network, layers=(first, *network.layers[1:]))
    report = proved(path, mixed, region)
    assert report.assumptions["sign_zero"] == "mixed"
    assert "as the model states it for each layer" in report.statement
    with pytest.raises(RejectedError, match=r"sign\(0\)|another network"):
        check(path, network)
    proved(path, mixed, region, sign_zero="either")
    with pytest.raises(RejectedError, match="for each layer"):
        check(path, mixed)


@pytest.mark.parametrize(
    ("sign_zero", "words"),
    [("plus", "sign(0) = +1,"), ("minus", "sign(0) = -1,"), ("either", "sign(0) = +1 or -1")],
)
def test_sign_of_zero_arithmetic_and_ties_are_named(
    tmp_path: Path, sign_zero: str, words: str
) -> None:
    path, region = tmp_path / "words.cert", bnncert.Ball("linf", [1.0], 0.5)
    for arithmetic in ("real", "float32"):
        for ties, more in (("violation", "a tie is a violation"), ("robust", "not a violation")):
            report = proved(path, line(sign_zero), region, arithmetic=arithmetic, ties=ties)
            assert words in report.statement and more in report.statement
            assert f"{arithmetic} arithmetic" in report.statement
            assert report.assumptions == {
                "sign_zero": sign_zero,
                "arithmetic": arithmetic,
                "ties": ties,
                "data_box": "without a data box",
                "inputs": "shown",
            }


@pytest.mark.parametrize(
    ("own", "clip", "words"),
    [
        (None, None, "without a data box"),
        (None, (0.0, 2.0), "inside the data box [0, 2], while the network states none"),
        ((0.0, 2.0), (0.0, 2.0), "inside the network's data box [0, 2]"),
        ((0.0, 2.0), None, "not limited to the network's data box [0, 2]"),
        ((0.0, 1.0), (0.0, 2.0), "inside the data box [0, 2], not the network's own [0, 1]"),
    ],
)
def test_the_data_box_is_named(
    tmp_path: Path, own: tuple[float, float] | None, clip: tuple[float, float] | None, words: str
) -> None:
    box = {} if own is None else {"input_lo": [own[0]], "input_hi": [own[1]]}
    region = bnncert.Ball("linf", [1.0], 0.25, *(clip or (None, None)))
    report = proved(tmp_path / "box.cert", line(**box), region)
    assert f"radius 0.25 {words}:" in report.statement
    assert report.assumptions["data_box"] == words


def test_bounds_that_differ_and_regions_without_a_data_box(tmp_path: Path) -> None:
    path = tmp_path / "box.cert"
    network = bnncert.Network.from_arrays([np.ones((1, 2)), WEIGHTS[1]], BIASES)
    region = bnncert.Ball("l2", [1.0, 1.0], 0.0, [0.0, 0.5], [1.0, 1.0])
    report = proved(path, network, region)
    assert "radius 0.0 inside the data box [0, 1] (less for some inputs)" in report.statement
    assert "which is one point" in report.statement
    report = proved(path, network, bnncert.Box([0.25, 0.5], [1.0, 2.0]))
    assert "a box in 2 dimensions with bounds [0.25, 2]" in report.statement
    assert (
        report.assumptions["data_box"] == "the region's own bounds [0.25, 2] (less for some inputs)"
    )


# -- properties -----------------------------------------------------------------------------------


def test_rivals_are_named_unless_they_are_all_others(tmp_path: Path) -> None:
    path, region = tmp_path / "rivals.cert", bnncert.Box([0.5], [1.0])
    statement = proved(path, line(), region, rivals=2).statement
    assert "class 0 scores more than class 2 (" in statement
    statement = proved(path, line(), region).statement
    assert "class 0 scores more than all other classes (" in statement
    sections = unpack(path)
    sections[0].fields["property"]["rivals"] = [1]
    with pytest.raises(RejectedError):
        check(pack(path, sections), line())
    two = bnncert.Network.from_arrays(
        [WEIGHTS[0], WEIGHTS[1][:2]], [BIASES[0], BIASES[1][:2]], sign_zero="plus"
    )
    assert "more than class 1 (" in proved(path, two, region).statement


def test_conditions_are_written_out(tmp_path: Path) -> None:
    path, network, region = tmp_path / "many.cert", line(), bnncert.Box([0.5], [1.0])
    first = score_objective(network, {0: 2, 1: -1}, 1, tie_is_fine=True)
    second = score_objective(network, {2: -1}, 0)
    problem = Problem(network, region, (Target("both", (first, second)),) * 3)
    write_proof(path, problem, network)
    words = "2 score 0 - score 1 + 1 < 0 and -score 2 <= 0"
    report = check(path, network)
    assert f"none of 3 conditions on the scores holds: {words}; {words}; {words} (" in (
        report.statement
    )
    write_proof(path, replace(problem, targets=problem.targets * 2), network)
    assert "6 conditions" in check(path, network).statement
    assert "; and so on (" in check(path, network).statement


def _claims() -> dict[str, dict[str, Any]]:
    empty = {"scores": {}, "constant": "1", "tie_is_fine": False}
    zero = {"scores": {"0": "0", "1": "0"}, "constant": "1", "tie_is_fine": False}
    plain = {"kind": "classification", "ties": "violation"}
    return {
        "no rivals": {**plain, "label": 0, "rivals": []},
        "no rivals of a class beyond": {**plain, "label": 99, "rivals": []},
        "no rivals of a class below": {**plain, "label": -5, "rivals": []},
        "a label beyond": {**plain, "label": 3, "rivals": [1]},
        "a rival twice": {**plain, "label": 0, "rivals": [1, 1]},
        "the label as rival": {**plain, "label": 0, "rivals": [0]},
        "a rival beyond": {**plain, "label": 0, "rivals": [3]},
        "a rival below": {**plain, "label": 0, "rivals": [-1]},
        "no targets": {"kind": "targets", "targets": []},
        "a target without functions": {"kind": "targets", "targets": [[]]},
        "a function without scores": {"kind": "targets", "targets": [[empty]]},
        "a function of no score": {"kind": "targets", "targets": [[zero]]},
    }


@pytest.mark.parametrize("name", _claims())
@pytest.mark.parametrize("verdict", ["robust", "not_robust"])
def test_a_claim_about_nothing_is_refused(tmp_path: Path, name: str, verdict: str) -> None:
    """Where there is nothing to prove, the shortest proof would be enough."""
    path, network, region = tmp_path / "nothing.cert", line(), bnncert.Box([-1.0], [1.0])
    claim = _claims()[name]
    fields = {"verdict": verdict, "network": network.content_hash, "sign_zero": None}
    fields |= {"arithmetic": "real", "property": claim, "region": "box"}
    statement = Section("statement", fields, {"lo": region.lo, "hi": region.hi})
    point = Section("point", {"target": 0}, {"point": np.array([-1.0])})
    nodes = dict.fromkeys(CONTENTS["nodes"][1], Z)
    tree = [
        Section("target", {"number": 0, "objective": 0}),
        Section("nodes", {}, {**nodes, "kind": np.array([-2])}),
    ]
    for rest in [[], [point], tree]:
        with pytest.raises(REFUSALS, match=r"rivals|class|target|says nothing"):
            check(pack(path, [statement, *rest]), network)


def test_a_claim_about_nothing_is_not_written(tmp_path: Path) -> None:
    path, network, region = tmp_path / "nothing.cert", line(), bnncert.Box([-1.0], [1.0])
    always = score_objective(network, {}, -1)
    for targets in ((), (Target("t", ()),), (Target("t", (always,)),)):
        problem = Problem(network, region, targets)
        with pytest.raises(CertificateError, match="no certificate: "):
            write_proof(path, problem, network)
        if targets:
            found = Counterexample(np.zeros(1), None, "t", (0.0,) * 3, 0.0)  # type: ignore[call-arg,arg-type]
            with pytest.raises(CertificateError, match="no certificate: "):
                write_counterexample(path, problem, network, found)
    assert not path.exists()


# -- regions --------------------------------------------------------------------------------------


def test_a_region_without_float32_numbers_is_refused(tmp_path: Path) -> None:
    path, network = tmp_path / "thin.cert", line()
    near = 1 + 2.0**-40
    for region in (
        bnncert.Box([near], [near]),
        bnncert.Ball("linf", [near], 2.0**-45),
        bnncert.Ball("l2", [near], 2.0**-45),
        bnncert.Ball("l1", [near], 2.0**-45, [1.0], [2.0]),
    ):
        assert proved(path, network, region).verdict == "robust"
        with pytest.raises(CertificateError, match="float32"):
            proved(path, network, region, arithmetic="float32")
        sections = unpack(path)
        sections[0].fields["arithmetic"] = "float32"
        with pytest.raises(RejectedError, match="no input of float32 numbers"):
            check(pack(path, sections), network)
    wide = bnncert.Ball("l2", [near], 2.0**-39)
    assert proved(path, network, wide, arithmetic="float32").verdict == "robust"


def test_a_polytope_is_shown_to_have_an_input(valid: dict[str, Valid], tmp_path: Path) -> None:
    one, path = valid["polytope"], tmp_path / "polytope.cert"
    report = check(pack(path, one.sections), one.network)
    assert report.assumptions["inputs"] == "shown"
    assert "not shown" not in report.statement
    sections = copy.deepcopy(one.sections)
    inside = sections[0].arrays.pop("inside")
    report = check(pack(path, sections), one.network)
    assert report.assumptions["inputs"] == "not shown"
    assert "not shown: that the region has an input" in report.statement
    sections[0].arrays["inside"] = inside + 100
    with pytest.raises(RejectedError, match="not empty lies outside"):
        check(pack(path, sections), one.network)


def test_an_empty_polytope_is_never_said_to_have_inputs(tmp_path: Path) -> None:
    """x <= 0 and x >= 1: signs exclude each other that do not, and everything follows."""
    path, network = tmp_path / "empty.cert", line()
    proved(path, network, bnncert.Polytope([[1.0], [-1.0]], [2.0, -0.5], [-2.0], [2.0]))
    sections = unpack(path)
    sections[0].arrays |= {"right": np.array([0.0, -1.0])}
    sections[0].arrays.pop("inside")
    sections[0].fields["property"]["label"] = 2
    sections[0].fields["property"]["rivals"] = [0, 1]
    arrays = {"sizes_of_clauses": [3, 3], "neurons": [0, -1, -2, 0, -1, -2]}
    arrays |= {"signs": [1, 1, 1, -1, 1, 1], "theta": [0, 1, 1, 0, 1, 1]}
    clash = Section("clashes", {"layer": 0}, {k: np.array(v) for k, v in arrays.items()})
    report = check(pack(path, [sections[0], clash]), network)
    assert report.assumptions["inputs"] == "not shown"
    for point in (-1.0, 0.0, 0.5, 1.0):
        sections[0].arrays["inside"] = np.array([point])
        with pytest.raises(RejectedError, match="outside"):
            check(pack(path, [sections[0], clash]), network)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda s: s.arrays.update(lo=np.zeros(2)), "not those of region"),
        (lambda s: s.arrays.pop("center"), "not those of region"),
        (lambda s: s.arrays.update(center=np.zeros(3)), "floats"),
        (lambda s: s.arrays.update(center=np.zeros((2, 1)).ravel()[:1]), "floats"),
        (lambda s: s.fields.pop("radius"), "not those of region"),
        (lambda s: s.fields.update(radius="NaN"), "p/q"),
        (lambda s: s.fields.update(radius="inf"), "p/q"),
        (lambda s: s.fields.update(radius=None), "p/q"),
        (lambda s: s.fields.update(region="box"), "not those of region"),
        (lambda s: s.arrays.update(center=np.array([1e-300, 1.0])), "differ too much"),
        (lambda s: s.fields.update(radius=str(2**900)), "differ too much"),
    ],
)
def test_a_region_that_does_not_fit(
    valid: dict[str, Valid], tmp_path: Path, change: Callable[[Section], Any], why: str
) -> None:
    one = valid["linf"]
    sections = copy.deepcopy(one.sections)
    change(sections[0])
    with pytest.raises(UnreadableError if "much" not in why else RejectedError, match=why):
        check(pack(tmp_path / "region.cert", sections), one.network)
