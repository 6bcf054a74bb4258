"""Whatever is changed in a certificate, what is accepted is true."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.checking.container import Section
from tests.checking.claims import accepted, is_true, pack
from tests.checking.conftest import Valid

#: Mutants for each certificate, and seconds that one may take (on a slow, busy machine).
MUTANTS, SECONDS = 205, 5.0

STRANGE: list[Any] = [
    None, True, False, 0, 1, 2, -1, 10**30, 0.5, float("nan"), "", "x", "0", "1", "1/2", "4",
    "1000", "-1", "1/3", "1e9", "1/0", [], [[]], {}, [0, 1], "robust", "not_robust", "violation",
    "either", "plus", "minus", "box", "linf", "l1", "l2", "polytope", "float32", "real",
]  # fmt: skip

Sections = list[Section]
Random = np.random.Generator


def _pick(rng: Random, items: list[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


def _array(rng: Random, sections: Sections) -> tuple[Section, str]:
    places = [(s, k) for s in sections for k, v in s.arrays.items() if v.size]
    return _pick(rng, places)


def change_number(rng: Random, sections: Sections) -> None:
    section, name = _array(rng, sections)
    array = section.arrays[name]
    k = int(rng.integers(array.size))
    old = array[k]
    if array.dtype.kind == "f":
        choices = [old + 1, old - 1, -old, 0.0, 2 * old, old * 1e3, np.nextafter(old, 9e9), 1e90]
        choices += [old + 0.25, float("nan"), float("inf"), old / 3]
        array[k] = _pick(rng, choices)
        return
    value = int(old)
    choices = [value + 1, value - 1, -value, 0, -1, 1, 2 * value, value // 2, 2**31, 2**59, 2**62]
    choices += [int(rng.integers(-9, 10)), -(2**63), 2**63 - 1, value + 2, value ^ 1]
    section.arrays[name] = array.astype("<i8")
    section.arrays[name][k] = max(-(2**63), min(2**63 - 1, int(_pick(rng, choices))))


def rearrange(rng: Random, sections: Sections) -> None:
    section, name = _array(rng, sections)
    array = section.arrays[name]
    i, j = (int(v) for v in rng.integers(array.size, size=2))
    change = int(rng.integers(6))
    if change == 0:
        array[i], array[j] = array[j], array[i]
    elif change == 1:
        section.arrays[name] = np.delete(array, i)
    elif change == 2:
        section.arrays[name] = np.insert(array, i, array[j])
    elif change == 3:
        section.arrays[name] = array[::-1].copy()
    elif change == 4:
        del section.arrays[name]
    else:
        with np.errstate(invalid="ignore"):
            section.arrays[name] = array.astype(_pick(rng, ["|i1", "<i4", "<i8", "<f8"]))


def drop_leaf(rng: Random, sections: Sections) -> None:
    """Remove or repeat a node, with or without its numbers."""
    section = _pick(rng, [s for s in sections if s.name == "nodes"] or sections)
    kind = section.arrays.get("kind")
    if kind is None:
        return rearrange(rng, sections)
    k = int(rng.integers(kind.size))
    if rng.integers(2):
        section.arrays["kind"] = np.delete(kind, k)
    else:
        section.arrays["kind"] = np.insert(
            kind, k, int(_pick(rng, [-1, -2, -3, 0, 1, int(kind[k])]))
        )
    return None


def drop_clause(rng: Random, sections: Sections) -> None:
    """Remove or repeat a clause, consistently."""
    having = [s for s in sections if s.arrays.get("sizes_of_clauses", np.zeros(0)).size]
    if not having:
        return change_number(rng, sections)
    section = _pick(rng, having)
    sizes = section.arrays["sizes_of_clauses"]
    k = int(rng.integers(sizes.size))
    start = int(sizes[:k].sum())
    entries = np.arange(start, start + int(sizes[k]))
    twice = bool(rng.integers(2))
    for name in ("neurons", "signs", "theta"):
        array = section.arrays[name]
        new = np.insert(array, start, array[entries]) if twice else np.delete(array, entries)
        section.arrays[name] = new
    per_clause = ["sizes_of_clauses", *(["since"] if "since" in section.arrays else [])]
    for name in per_clause:
        array = section.arrays[name]
        section.arrays[name] = np.insert(array, k, array[k]) if twice else np.delete(array, k)
    return None


def shuffle_sections(rng: Random, sections: Sections) -> None:
    i, j = (int(v) for v in rng.integers(len(sections), size=2))
    change = int(rng.integers(4))
    if change == 0:
        sections[i], sections[j] = sections[j], sections[i]
    elif change == 1:
        del sections[i]
    elif change == 2:
        sections.insert(i, copy.deepcopy(sections[j]))
    else:
        sections[i].name = _pick(
            rng, [s.name for s in sections] + ["end of it", "point", "clauses"]
        )


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every value in a tree of JSON."""
    if isinstance(tree, dict):
        pairs = list(tree.items())
    elif isinstance(tree, list):
        pairs = list(enumerate(tree))
    else:
        return []
    return [(tree, k) for k, _ in pairs] + [p for _, v in pairs for p in _places(v)]


def change_field(rng: Random, sections: Sections) -> None:
    holder, key = _pick(rng, [p for s in sections for p in _places(s.fields)])
    old = holder[key]
    if rng.integers(8) == 0:
        del holder[key]
    elif isinstance(old, int) and not isinstance(old, bool) and rng.integers(2):
        holder[key] = old + int(_pick(rng, [-2, -1, 1, 2]))
    elif isinstance(old, list) and rng.integers(2):
        holder[key] = _pick(rng, [old[::-1], old[1:], old + old, *([*old, k] for k in range(3))])
    elif isinstance(old, dict) and rng.integers(2):
        holder[key] = {**old, "0": "1"}
    else:
        holder[key] = copy.deepcopy(_pick(rng, STRANGE))


def larger_region(rng: Random, sections: Sections) -> None:
    fields, arrays = sections[0].fields, sections[0].arrays
    if "radius" in fields:
        fields["radius"] = str(_pick(rng, ["2", "9/4", "5/2", "4", "1000"]))
        if rng.integers(2):
            arrays.pop("clip_lo", None)
            arrays.pop("clip_hi", None)
    elif "lo" in arrays:
        arrays["lo"] = arrays["lo"] - _pick(rng, [0.25, 1.0, 100.0])
    if "right" in arrays:
        arrays["right"] = arrays["right"] + _pick(rng, [0.25, 1.0, 100.0])


def borrow(rng: Random, sections: Sections, valid: dict[str, Valid]) -> None:
    """Take a section of another proof."""
    other = _pick(rng, list(valid.values())).sections
    sections[int(rng.integers(len(sections)))] = copy.deepcopy(_pick(rng, other))


CHANGES: list[Callable[[Random, Sections], None]] = [
    *[change_number] * 6, rearrange, rearrange, drop_leaf, drop_clause, shuffle_sections,
    change_field, change_field, larger_region,
]  # fmt: skip

NAMES = ("linf", "l2", "l1", "polytope", "deep", "one", "gates", "targets", "clauses", "point")


@pytest.mark.parametrize("name", NAMES)
def test_an_accepted_mutant_is_true(valid: dict[str, Valid], name: str, tmp_path: Path) -> None:
    one, path = valid[name], tmp_path / "mutant.cert"
    rng = np.random.default_rng(len(name) + 17 * NAMES.index(name))
    outcomes: Counter[str] = Counter()
    truth: dict[str, bool] = {}
    for _ in range(MUTANTS):
        sections = copy.deepcopy(one.sections)
        for _ in range(int(rng.integers(1, 3))):
            if not sections:
                break
            if rng.integers(20) == 0:
                borrow(rng, sections, valid)
            else:
                # A second change may meet what the first one has broken.
                with suppress(IndexError, KeyError, ValueError, OverflowError):
                    _pick(rng, CHANGES)(rng, sections)
        pack(path, sections)
        started = time.process_time()
        report = accepted(path, one.network)
        assert time.process_time() - started < SECONDS
        outcomes["refused" if report is None else "accepted"] += 1
        if report is not None:
            key = f"{sections[0].fields}{sections[0].arrays}"
            if key not in truth:
                truth[key] = is_true(sections[0], one.tiny)
            assert truth[key]
    assert outcomes["refused"] > MUTANTS / 3


@pytest.mark.parametrize("name", NAMES)
def test_another_network_is_rejected(valid: dict[str, Valid], name: str, tmp_path: Path) -> None:
    """Also where the statement is made to name it: then the proof itself has to fail or hold."""
    one, path = valid[name], tmp_path / "mutant.cert"
    rng = np.random.default_rng(5)
    for _ in range(12):
        weights = [w.copy() for w in one.tiny.weights]
        biases = [b.copy() for b in one.tiny.biases]
        k = int(rng.integers(len(weights)))
        if rng.integers(2):
            biases[k][rng.integers(biases[k].size)] += _pick(rng, [-2.0, -0.5, 0.5, 2.0])
        else:
            i, j = (int(rng.integers(n)) for n in weights[k].shape)
            weights[k][i, j] = _pick(rng, [v for v in (-1.0, 0.0, 1.0) if v != weights[k][i, j]])
        other = type(one.tiny)(tuple(weights), tuple(biases), one.tiny.sign_zero)
        network = other.build()
        sections = copy.deepcopy(one.sections)
        if network.content_hash != one.network.content_hash:
            assert accepted(pack(path, sections), network) is None
        sections[0].fields["network"] = network.content_hash
        if accepted(pack(path, sections), network) is not None:
            assert is_true(sections[0], other)
