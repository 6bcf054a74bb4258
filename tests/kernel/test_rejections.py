"""Each reason to refuse a certificate, by the words that it is given in."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, UnreadableError, check, skeleton
from bnncert.kernel.container import Section
from bnncert.kernel.counterexample import check_point, is_violated
from bnncert.kernel.function import Function
from bnncert.kernel.geometry import Geometry
from bnncert.kernel.leaves import Goal
from bnncert.kernel.section_reading import Clauses, Multipliers
from bnncert.kernel.skeleton import Skeleton
from bnncert.kernel.space import Space
from bnncert.kernel.statement import Statement
from tests.kernel.claims import REFUSALS, exact_space, pack, random_network
from tests.kernel.conftest import Valid

Z = np.zeros(0, dtype=np.int64)


def changed(one: Valid, name: str, *, fields: Any = None, **arrays: Any) -> list[Section]:
    """Return the sections with some fields and arrays of the first one of a name replaced."""
    sections = copy.deepcopy(one.sections)
    section = next(s for s in sections if s.name == name)
    section.fields |= fields or {}
    section.arrays |= {k: np.asarray(v) for k, v in arrays.items()}
    return sections


def why(path: Path, sections: list[Section], network: bnncert.Network) -> str:
    with pytest.raises(REFUSALS) as caught:
        check(pack(path / "bad.cert", sections), network)
    return str(caught.value)


def classes(label: int, rivals: list[Any], ties: str = "robust") -> dict[str, Any]:
    kind = "classification"
    return {"property": {"kind": kind, "label": label, "rivals": rivals, "ties": ties}}


def targets(value: Any) -> dict[str, Any]:
    return {"property": {"kind": "targets", "targets": value}}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"verdict": "unknown"}, "verdict"),
        ({"verdict": 1}, "verdict"),
        ({"sign_zero": "zero"}, "sign_zero"),
        ({"sign_zero": "plus"}, "another network"),
        ({"network": "0" * 64}, "another network"),
        ({"arithmetic": "bfloat16"}, "arithmetic"),
        ({"region": "ellipse"}, "region"),
        ({"radius": "-1"}, "negative"),
        ({"radius": "1/3"}, "float64"),
        ({"radius": "1" + 999 * "0"}, "float64"),
        ({"radius": str(Fraction(1) + Fraction(1, 2**60))}, "float64"),
        ({"inequalities": 0}, "not those of region"),
        ({"sizes": [2, 7]}, "other sizes"),
        ({"comment": "robust everywhere"}, "does not belong"),
        ({"property": None}, "no property"),
        ({"property": {"kind": "classification"}}, "unknown kind"),
        ({"property": {**classes(0, [1])["property"], "more": 1}}, "unknown kind"),
        (classes(0, [True]), "not classes"),
        (classes(0, [1, 1]), "twice"),
        (classes(0, [0]), "the label itself"),
        (classes(0, [0, 1]), "the label itself"),
        (classes(0, [1], ""), "neither violation nor robust"),
        (classes(0, [7]), "does not have"),
        (classes(0, [-1]), "does not have"),
        (classes(-1, [1]), "does not have"),
        ({"property": {"kind": "fairness"}}, "unknown kind"),
        (targets(1), "without targets"),
        (targets([1]), "without functions"),
        (targets([[1]]), "without scores"),
        (targets([[{"scores": []}]]), "without scores"),
        (targets([[{"scores": {"0": "1"}}]]), "tie_is_fine"),
        (targets([[{"scores": {"00": "1"}, "tie_is_fine": True}]]), "does not have"),
        (targets([[{"scores": {"0": 1}, "tie_is_fine": True}]]), "p/q"),
        (targets([[{"scores": {"0": "1"}, "tie_is_fine": True}]]), "p/q"),
        (targets([[{"scores": {"0": "1"}, "constant": "0", "tie_is_fine": True, "a": 1}]]), "more"),
        (targets([[{"scores": {"9" * 5000: "1"}, "tie_is_fine": True}]]), "does not have"),
    ],
)  # fmt: skip
def test_statements(valid: dict[str, Valid], fields: Any, reason: str, tmp_path: Path) -> None:
    one = valid["deep"]
    assert reason in why(tmp_path, changed(one, "statement", fields=fields), one.network)


def test_regions(valid: dict[str, Valid], tmp_path: Path) -> None:
    one, center = valid["l2"], valid["l2"].sections[0].arrays["center"]
    outside = changed(one, "statement", clip_lo=center + 1, clip_hi=center + 2)
    assert "outside the data box" in why(tmp_path, outside, one.network)
    one = valid["polytope"]
    low = one.sections[0].arrays["hi"] + 1.0
    assert "empty" in why(tmp_path, changed(one, "statement", lo=low), one.network)
    assert "floats" in why(tmp_path, changed(one, "statement", lo=low[:1]), one.network)
    assert "floats" in why(tmp_path, changed(one, "statement", lo=Z), one.network)
    short = changed(one, "statement", fields={"inequalities": 1})
    assert "floats" in why(tmp_path, short, one.network)
    negative = changed(one, "statement", fields={"inequalities": -1})
    assert "inequalities" in why(tmp_path, negative, one.network)


def test_order_of_sections(valid: dict[str, Valid], tmp_path: Path) -> None:
    one, s = valid["deep"], valid["deep"].sections
    assert "begin with" in why(tmp_path, [], one.network)
    assert "begin with" in why(tmp_path, s[1:], one.network)
    assert "out of place" in why(tmp_path, [*s, s[0]], one.network)
    assert "out of place" in why(tmp_path, [*s, Section("more")], one.network)
    clash = next(x for x in s if x.name == "clashes")
    assert "two lists" in why(tmp_path, [s[0], clash, *s[1:]], one.network)
    target = next(k for k, x in enumerate(s) if x.name == "target")
    assert "not proved" in why(tmp_path, s[:target], one.network)
    assert "twice" in why(tmp_path, [*s, *s[target:]], one.network)
    assert "cover" in why(tmp_path, s[: target + 1], one.network)
    nodes = s[target + 1]
    assert "after its end" in why(tmp_path, [*s[: target + 2], nodes], one.network)
    bad = changed(one, "target", fields={"number": 9})
    assert "does not exist" in why(tmp_path, bad, one.network)
    bad = changed(one, "target", fields={"objective": 9})
    assert "no such objective" in why(tmp_path, bad, one.network)
    assert "number" in why(tmp_path, changed(one, "target", fields={"number": "0"}), one.network)


def test_clauses(valid: dict[str, Valid], tmp_path: Path) -> None:
    one = valid["clauses"]
    arrays = {"sizes_of_clauses": [2], "neurons": [0, 1], "signs": [1, 1], "theta": [1, 1]}

    def reason(name: str, layer: int = 0, **new: Any) -> str:
        extra = Section(name, {"layer": layer}, {k: np.array(v) for k, v in (arrays | new).items()})
        rest = [s for s in one.sections[1:] if s.name != name]
        return why(tmp_path, [one.sections[0], extra, *rest], one.network)

    for name in ("clauses", "clashes"):
        assert "is not proved" in reason(name)
        assert "cannot be about" in reason(name, layer=9)
        assert "add up" in reason(name, sizes_of_clauses=[1])
        assert "add up" in reason(name, sizes_of_clauses=[3, -1])
        assert "different lengths" in reason(name, signs=[1])
        assert "does not exist" in reason(name, neurons=[0, 99])
        assert "does not exist" in reason(name, neurons=[0, -1])
        assert "impossible sign" in reason(name, signs=[1, 0])
        assert "negative" in reason(name, theta=[1, -1])
        assert "integers" in reason(name, theta=[0.5, 0.5])
    assert "cannot be about" in reason("clauses", layer=1)
    three = {"sizes_of_clauses": [3], "neurons": [0, 1, 2], "signs": [1] * 3, "theta": [1] * 3}
    assert "not proved" in reason("clashes", **three)


def test_trees(valid: dict[str, Valid], tmp_path: Path) -> None:
    # A tree with numbers and without a contradiction at its root.
    one = valid["gates"]
    nodes = next(s for s in one.sections if s.name == "nodes")
    assert nodes.arrays["unit"].size
    size = nodes.arrays["kind"].size

    def reason(**arrays: Any) -> str:
        return why(tmp_path, changed(one, "nodes", **arrays), one.network)

    assert "cover" in reason(kind=nodes.arrays["kind"][:-1])
    assert "not open" in reason(kind=[99] + [-1] * size)
    assert "not open" in reason(kind=[0, 0] + [-1] * size)
    assert "not a contradiction" in reason(kind=[-1])
    assert "not a contradiction" in reason(kind=[-9])
    assert "only shows" in reason(kind=[-2])
    assert "do not belong to a leaf" in reason(kind=Z)
    assert "wrong length" in reason(tables=[*nodes.arrays["tables"], 0])
    assert "add up" in reason(sizes=[0])
    assert "add up" in reason(sizes=-nodes.arrays["sizes"])
    assert "out of order" in reason(since=[1, 2, 3])
    learned = next(
        v
        for v in valid.values()
        for s in v.sections
        if s.name == "nodes" and s.arrays["since"].size
    )
    sections = copy.deepcopy(learned.sections)
    for section in sections:
        if section.name == "nodes":
            section.arrays["theta"] = 0 * section.arrays["theta"]
    assert "a clause is not proved" in why(tmp_path, sections, learned.network)
    nothing = dict.fromkeys(nodes.arrays, Z) | {"kind": np.array([-3])}
    assert "no numbers" in reason(**nothing)


def test_an_exception_is_a_refusal(
    valid: dict[str, Valid], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Statement, "read", lambda *_: 1 // 0)
    one = valid["one"]
    assert "inconsistent (ZeroDivisionError)" in why(tmp_path, one.sections, one.network)


def test_points(valid: dict[str, Valid], tmp_path: Path) -> None:
    one = valid["point"]
    center = one.sections[0].arrays["center"]

    def reason(fields: Any = None, **arrays: Any) -> str:
        return why(tmp_path, changed(one, "point", fields=fields, **arrays), one.network)

    assert "missing" in why(tmp_path, one.sections[:1], one.network)
    assert "more than" in why(tmp_path, [*one.sections, one.sections[1]], one.network)
    assert "outside" in reason(point=center + 100)
    assert "floats" in reason(point=center[:1])
    assert "does not exist" in reason({"target": 99})
    assert "not a list" in reason({"exact": "1"})
    assert "not a list" in reason({"exact": ["1"]})
    assert "p/q" in reason({"exact": [1, 2]})
    won = valid["linf"]
    statement = changed(won, "statement", fields={"verdict": "not_robust"})[0]
    point = Section("point", {"target": 0}, {"point": won.sections[0].arrays["center"]})
    assert "does not violate" in why(tmp_path, [statement, point], won.network)


def test_a_point_whose_sign_is_unknown() -> None:
    """Batch normalisation may leave a threshold between two floats."""
    network = bnncert.Network.from_arrays(
        [np.ones((1, 1)), np.ones((2, 1))], [np.zeros(1), np.zeros(2)]
    )
    layer = network.layers[0]
    object.__setattr__(layer, "bias_lo", np.array([-1e-9]))
    space = exact_space([Fraction(-1)], [Fraction(1)], np.zeros((0, 1)), np.zeros(0))
    geometry = Geometry(layer, space)
    statement = Statement("not_robust", space, False, [[]], "", {}, {})
    section = Section("point", {"target": 0}, {"point": np.zeros(1)})
    with pytest.raises(RejectedError, match="rounding"):
        check_point(iter([section]), statement, network, geometry)
    assert geometry.states().tolist() == [0]


# -- numbers that would not fit ------------------------------------------------------------


def _space(size: int, low: Fraction, high: Fraction) -> Space:
    return exact_space([low] * size, [high] * size, np.zeros((0, size)), np.zeros(0))


@pytest.mark.parametrize("theta", [1, 2**20, 2**58, 2**59, 2**60, 2**62, 2**63 - 1])
def test_large_multipliers_change_nothing(theta: int) -> None:
    """Sums of them leave 64 bits: for 32 inputs 32 * 2^59 is 0 modulo 2^64."""
    network = bnncert.Network.from_arrays(
        [np.ones((1, 32)), np.ones((2, 1))], [np.zeros(1), np.zeros(2)]
    )
    for high, proved in ((Fraction(5, 8), False), (Fraction(-1, 8), True)):
        geometry = Geometry(network.layers[0], _space(32, Fraction(-1), high))
        one = Clauses(np.array([0, 1]), np.array([0]), np.array([1]), np.array([theta]))
        assert geometry.proved(one).tolist() == [proved]
        thrice = Clauses(np.array([0, 3]), np.zeros(3, int), np.ones(3, int), np.full(3, theta))
        assert geometry.proved(thrice).tolist() == [proved]


def test_an_inequality_has_one_direction() -> None:
    """x <= 1/2 may be added as 1/2 - x >= 0, never as 1/2 + x."""
    network = bnncert.Network.from_arrays(
        [np.array([[-1.0]]), np.ones((2, 1))], [np.array([-0.75]), np.zeros(2)]
    )
    space = exact_space([Fraction(-1)], [Fraction(1)], np.ones((1, 1)), np.array([0.5]))
    geometry = Geometry(network.layers[0], space)
    for sign in (-1, 0, 2):
        clause = Clauses(np.array([0, 2]), np.array([0, -1]), np.array([1, sign]), np.array([1, 1]))
        with pytest.raises(RejectedError, match="impossible sign"):
            geometry.proved(clause)


def test_clauses_that_are_too_long_and_weights_that_are_too_fine() -> None:
    count = 2**16 + 1
    network = bnncert.Network.from_arrays(
        [np.array([[1.0, 1e-300]]), np.ones((2, 1))], [np.zeros(1), np.zeros(2)]
    )
    with pytest.raises(RejectedError, match="too fine"):
        Geometry(network.layers[0], _space(2, Fraction(-1), Fraction(1)))
    network = bnncert.Network.from_arrays(
        [np.array([[1.0]]), np.ones((2, 1))], [np.zeros(1), np.zeros(2)]
    )
    geometry = Geometry(network.layers[0], _space(1, Fraction(-1), Fraction(1)))
    one = np.ones(count, dtype=np.int64)
    with pytest.raises(RejectedError, match="too long"):
        geometry.proved(Clauses(np.array([0, count]), 0 * one, one, one))


def _goal(scale: Fraction = Fraction(1), depth: int = 2) -> tuple[Goal, Skeleton]:
    sizes = [2, 4, 3, 2] if depth == 2 else [2, 4, 4, 3, 2]
    network = random_network(np.random.default_rng(8), sizes).build()
    geometry = Geometry(network.layers[0], _space(2, Fraction(-2), Fraction(2)))
    skeleton = Skeleton(network, geometry, {})
    function = Function.of(network, {0: scale, 1: -scale}, Fraction(0), False)
    return Goal(skeleton, function, Clauses(np.zeros(1, np.int64), Z, Z, Z)), skeleton


def test_numbers_of_leaves() -> None:
    goal, skeleton = _goal(depth=3)
    view = goal.view(np.zeros(skeleton.size, dtype=np.int8))
    assert view is not None
    none, one = Multipliers.none(), np.ones(1, dtype=np.int64)
    free = np.zeros(view.free.size + 1, dtype=np.int64)
    two, four = np.ones((1, 2), dtype=np.int64), np.ones((1, 4), dtype=np.int64)
    known = np.argwhere(view.excluded)

    def refused(match: str, **numbers: Any) -> None:
        with pytest.raises(RejectedError, match=match):
            goal.bound(view, Multipliers(**{**vars(none), **numbers}))

    refused("unit", shift=49, tables=0 * one, table_values=two)
    refused("unit", shift=-1)
    refused("twice", tables=0 * one, table_values=two, gates=one, gate_values=four)
    refused("twice", tables=99 * one, table_values=two)
    refused("twice", tables=-one, table_values=two)
    refused("twice", tables=np.zeros(2, int), table_values=np.ones((2, 2), int))
    refused("too large", tables=0 * one, table_values=2**60 * two)
    refused("too large", tables=0 * one, table_values=np.array([[0, -(2**63)]]))
    refused("wrong number", diagonal=one)
    refused("definite", diagonal=free)
    refused("no diagonal", tables=0 * one, table_values=two)
    refused("does not exist", clash_first=-one, clash_second=one, clash_values=one)
    refused("does not exist", clash_first=999 * one, clash_second=one, clash_values=one)
    refused("not known", clash_first=0 * one, clash_second=one, clash_values=one)
    refused("variable that", split_tables=0 * one, split_variables=-one, split_values=two)
    refused("variable that", split_tables=0 * one, split_variables=999 * one, split_values=two)
    refused("twice", split_tables=99 * one, split_variables=0 * one, split_values=two)
    same = np.zeros(2, int)
    refused("twice", split_tables=same, split_variables=same, split_values=np.ones((2, 2), int))
    refused("too large", split_tables=0 * one, split_variables=0 * one, split_values=2**60 * two)
    refused("no diagonal", split_tables=0 * one, split_variables=0 * one, split_values=two)
    if known.size:
        a, b = (np.array([v]) for v in known[0])
        refused("no diagonal", clash_first=a, clash_second=b, clash_values=-one)


@pytest.mark.parametrize("scale", [2**10, 2**40, 2**50, 2**54, 2**58, 2**63, 2**64])
def test_huge_properties(scale: int) -> None:
    """f is multiplied by a number that makes its sums leave 64 bits; its sign does not change."""
    small, skeleton = _goal()
    view = small.view(np.zeros(skeleton.size, dtype=np.int8))
    assert view is not None
    bound = small.bound(view, Multipliers.none())
    if scale >= 2**58:
        with pytest.raises(RejectedError, match="too large"):
            _goal(Fraction(scale))
        return
    goal, _ = _goal(Fraction(scale))
    assert goal.bound(view, Multipliers.none()) == scale * bound
    # With a number of its own a leaf has a unit, too, in which phi must fit.
    one = np.zeros(1, dtype=np.int64)
    numbers = replace(Multipliers.none(), tables=one, table_values=np.zeros((1, 2), np.int64))
    if scale > 2**20:
        with pytest.raises(RejectedError, match="too large"):
            goal.bound(view, numbers)
    else:
        assert goal.bound(view, numbers) == scale * bound


def test_sums_and_variables_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton, "MOST_REACH", 1)
    with pytest.raises(RejectedError, match="sums"):
        _goal()
    monkeypatch.setattr(skeleton, "MOST_VARIABLES", 1)
    with pytest.raises(RejectedError, match="open neurons"):
        _goal()


def test_clashes_of_three() -> None:
    """Three signs may exclude each other, but a clash is about two."""
    network = bnncert.Network.from_arrays(
        [np.array([[1.0], [1.0], [-1.0]]), np.ones((2, 3))],
        [np.array([0.5, 0.25, -2.0]), np.zeros(2)],
    )
    geometry = Geometry(network.layers[0], _space(1, Fraction(-1), Fraction(1)))
    three = Clauses(np.array([0, 3]), np.arange(3), np.array([1, 1, 1]), np.array([1, 1, 2]))
    assert geometry.proved(three).all()
    with pytest.raises(RejectedError, match="one or two"):
        Skeleton(network, geometry, {0: three})


def test_scores_with_an_irrational_scale() -> None:
    network = random_network(np.random.default_rng(1), [2, 3, 2]).build()
    object.__setattr__(network.output, "gain_is_one", False)
    assert Function.of(network, {0: Fraction(1)}, Fraction(0), False)
    with pytest.raises(RejectedError, match="irrational"):
        Function.of(network, {0: Fraction(1)}, Fraction(1), False)


def test_doubt_counts_against_both_answers() -> None:
    network = random_network(np.random.default_rng(1), [2, 3, 2]).build()
    object.__setattr__(network.output, "bias_error", np.array([0.25, 0.25]))
    object.__setattr__(network.output, "group", np.array([0, 0]))
    one = Fraction(1)
    assert Function.of(network, {0: one, 1: -one}, Fraction(0), False).doubt == 0
    lone = Function.of(network, {0: one}, Fraction(0), False)
    assert lone.doubt == Fraction(1, 4)
    constant = Function(np.array([0], dtype=object), 1, Fraction(1, 8), Fraction(1, 4), False)
    assert not constant.is_positive_from(Fraction(-9))
    assert not is_violated(constant, np.ones(1, dtype=np.int8))


def test_unreadable_is_not_rejected(valid: dict[str, Valid], tmp_path: Path) -> None:
    """The two kinds of refusal are told apart, as exit codes need it."""
    one = valid["one"]
    (tmp_path / "no.cert").write_bytes(b"no certificate")
    with pytest.raises(UnreadableError):
        check(tmp_path / "no.cert", one.network)
    pack(tmp_path / "no.cert", changed(one, "statement", fields={"network": ""}))
    with pytest.raises(RejectedError):
        check(tmp_path / "no.cert", one.network)
