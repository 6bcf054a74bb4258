"""Changes of certificates: of any number, field, node, clause or section, and of the claim."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.kernel.container import CONTENTS, Section

STRANGE: list[Any] = [
    None, True, False, 0, 1, 2, -1, 10**30, 0.5, float("nan"), "", "x", "0", "1", "1/2", "4",
    "1000", "-1", "1/3", "1e9", "1/0", [], [[]], {}, [0, 1], "robust", "not_robust", "violation",
    "either", "plus", "minus", "box", "linf", "l1", "l2", "l0", "polytope", "float32", "float64",
    "real",
]  # fmt: skip

#: Sections before all trees of signs.
FACTS = ("clashes", "clauses", "branched")

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
    having = [s for s in sections if s.name in ("nodes", "tree", "branched")]
    section = _pick(rng, having or sections)
    name = {"tree": "variables", "branched": "nodes"}.get(section.name, "kind")
    kind = section.arrays.get(name)
    if kind is None:
        return rearrange(rng, sections)
    k = int(rng.integers(kind.size))
    if rng.integers(2):
        section.arrays[name] = np.delete(kind, k)
    else:
        section.arrays[name] = np.insert(
            kind, k, int(_pick(rng, [-1, -2, -3, -4, 0, 1, int(kind[k])]))
        )
    return None


def drop_clause(rng: Random, sections: Sections) -> None:
    """Remove or repeat a clause, consistently."""
    having = [s for s in sections if s.arrays.get("sizes_of_clauses", np.zeros(0)).size]
    having = [s for s in having if s.name != "branched"]
    if not having:
        return change_number(rng, sections)
    section = _pick(rng, having)
    sizes = section.arrays["sizes_of_clauses"]
    k = int(rng.integers(sizes.size))
    start = int(sizes[:k].sum())
    # An earlier change may have made a size huge.
    entries = np.arange(start, start + min(int(sizes[k]), section.arrays["neurons"].size))
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
    if "within" in fields and rng.integers(2):
        fields["within"] = str(_pick(rng, ["2", "9/4", "4", "1000"]))
    elif "radius" in fields:
        fields["radius"] = str(_pick(rng, ["2", "9/4", "5/2", "4", "1000"]))
        if rng.integers(2):
            arrays.pop("clip_lo", None)
            arrays.pop("clip_hi", None)
    elif "lo" in arrays:
        arrays["lo"] = arrays["lo"] - _pick(rng, [0.25, 1.0, 100.0])
    if "right" in arrays:
        arrays["right"] = arrays["right"] + _pick(rng, [0.25, 1.0, 100.0])


def change_claim(rng: Random, sections: Sections) -> None:
    """Claim something else with the same proof, in a form that makes sense."""
    fields, arrays = sections[0].fields, sections[0].arrays
    claim = fields["property"]
    change = int(rng.integers(9))
    if change == 0:
        fields["verdict"] = _pick(rng, ["robust", "not_robust"])
    elif change == 1:
        fields["sign_zero"] = _pick(rng, [None, "plus", "minus", "either"])
    elif change == 2:
        fields["arithmetic"] = _pick(rng, ["real", "float32"])
    elif change == 3 and "ties" in claim:
        claim["ties"] = _pick(rng, ["violation", "robust"])
    elif change == 4 and "label" in claim:
        classes = sorted({claim["label"], *claim["rivals"]})
        claim["label"] = _pick(rng, [*classes, classes[-1] + 1, -1])
        claim["rivals"] = [k for k in classes if k != claim["label"]]
    elif change == 5 and "rivals" in claim:
        claim["rivals"] = _pick(
            rng, [claim["rivals"][1:], claim["rivals"][::-1], claim["rivals"] * 2, [0], [1, 2]]
        )
    elif change == 6 and "targets" in claim:
        change_targets(rng, claim["targets"])
    elif change == 7 and fields["region"] in ("linf", "l1", "l2", "l0"):
        fields["region"] = _pick(rng, ["linf", "l1", "l2", "l0"])
    elif change == 8 and "grid" in fields:
        change_grid(rng, sections)
    elif "center" in arrays:
        arrays["center"] = arrays["center"] + _pick(rng, [0.25, -0.25, 2.0**-20, 1.0])
    elif "lo" in arrays:
        step = _pick(rng, [0.25, -0.25, 2.0**-20, 1.0])
        arrays["lo"], arrays["hi"] = arrays["lo"] + step, arrays["hi"] + step


def change_grid(rng: Random, sections: Sections) -> None:
    """Claim the same about a finer or another grid, or about all real inputs."""
    fields, arrays = sections[0].fields, sections[0].arrays
    change = int(rng.integers(5))
    if change == 0:
        del fields["grid"], arrays["grid_step"], arrays["grid_origin"]
    elif change == 1:
        arrays["grid_step"] = arrays["grid_step"] * _pick(rng, [0.25, 0.5, 0.75, 2.0])
    elif change == 2:
        arrays["grid_origin"] = arrays["grid_origin"] + _pick(rng, [0.25, 0.1, -0.5, 2.0**-20])
    elif change == 3:
        fields["grid"] = _pick(rng, ["float32", "float64"])
    else:
        factor = _pick(rng, [0.5, 0.3, 1 + 2.0**-12])
        arrays["grid_step"] = np.where(rng.random(arrays["grid_step"].size) < 0.5, factor, 1.0)


def change_targets(rng: Random, targets: list[Any]) -> None:
    """Change a condition on the scores."""
    target = _pick(rng, targets)
    objective = _pick(rng, target)
    key = _pick(rng, list(objective["scores"]))
    change = int(rng.integers(6))
    if change == 0:
        objective["scores"][key] = str(-Fraction(objective["scores"][key]))
    elif change == 1:
        del objective["scores"][key]
    elif change == 2:
        objective["constant"] = str(Fraction(objective["constant"]) + _pick(rng, [1, -1, 4, -4]))
    elif change == 3:
        objective["tie_is_fine"] = not objective["tie_is_fine"]
    elif change == 4:
        target.pop()
    else:
        targets.pop()


def smaller_region(rng: Random, sections: Sections) -> None:
    """Claim less: most of these are still proved, or just not."""
    fields, arrays = sections[0].fields, sections[0].arrays
    if fields["region"] == "l0" and rng.integers(2):
        fields["radius"] = str(int(_pick(rng, [0, 1, 2])))
    elif "radius" in fields:
        factor = _pick(rng, [Fraction(0), Fraction(1, 2), Fraction(7, 8), Fraction(9, 8)])
        fields["radius"] = str(Fraction(fields["radius"]) * factor)
    elif "hi" in arrays:
        arrays["hi"] = arrays["hi"] - _pick(rng, [0.125, 0.25, 1.0])


def turn_clauses(rng: Random, sections: Sections) -> None:
    """Negate the signs of a list of clauses, or multiply its multipliers."""
    having = [s for s in sections if s.arrays.get("theta", np.zeros(0)).size]
    if not having:
        return change_number(rng, sections)
    section = _pick(rng, having)
    if rng.integers(2):
        section.arrays["signs"] = -section.arrays["signs"]
    else:
        section.arrays["theta"] = section.arrays["theta"].astype("<i8") * int(rng.integers(0, 4))
    return None


def _targets(claim: object) -> int:
    """Return how many targets a claim has; an earlier change may have left something else."""
    found = claim.get("rivals", claim.get("targets")) if isinstance(claim, dict) else None
    return len(found) if isinstance(found, list) else 0


def forge(rng: Random, sections: Sections) -> None:
    """Claim robustness with clauses that exclude both signs of a neuron: nothing would be left.

    They come as clashes in front of all trees, or as what the only node of each tree has learned.
    """
    fields = sections[0].fields
    claim = fields["property"]
    fields["verdict"] = "robust"
    neuron, first = int(rng.integers(4)), int(rng.choice([-1, 1]))
    entries = [[(neuron, first)], [(neuron, -first)]]
    for clause in entries:
        if rng.integers(2):
            clause.append((int(rng.integers(4)), int(rng.choice([-1, 1]))))
        if "right" in sections[0].arrays and rng.integers(2):
            clause.append((-1 - int(rng.integers(sections[0].arrays["right"].size)), 1))
    together = [entry for clause in entries for entry in clause]
    arrays = {
        "sizes_of_clauses": np.array([len(clause) for clause in entries]),
        "neurons": np.array([j for j, _ in together]),
        "signs": np.array([s for _, s in together]),
        "theta": rng.integers(0, 4, len(together)),
    }
    if rng.integers(2):
        sections[1:] = [Section("clashes", {"layer": 0}, arrays)]
        return
    empty = dict.fromkeys(CONTENTS["nodes"][1], np.zeros(0, dtype=np.int64))
    node = {**empty, "kind": np.array([-1]), "since": np.zeros(2, dtype=np.int64), **arrays}
    sections[1:] = []
    for number in range(_targets(claim)):
        sections.append(Section("target", {"number": number, "objective": 0}))
        sections.append(Section("nodes", {}, dict(node)))


def forge_branched(rng: Random, sections: Sections) -> None:
    """Claim more than trees of inputs prove: other signs, other trees, or other multipliers."""
    having = [s for s in sections if s.name == "branched"]
    if not having:
        return forge(rng, sections)
    arrays = _pick(rng, having).arrays
    change = int(rng.integers(5))
    if change == 0:
        k = int(rng.integers(arrays["signs"].size))
        arrays["signs"][k] = -arrays["signs"][k]
    elif change == 1:
        k = int(rng.integers(arrays["neurons"].size))
        arrays["neurons"][k] = int(rng.integers(6))
    elif change == 2:
        arrays["places"] = arrays["places"] + int(rng.choice([-1, 1, 2]))
    elif change == 3:
        arrays["theta"] = rng.integers(0, 4, arrays["theta"].size)
    else:
        size = int(rng.integers(1, 3))
        arrays["sizes_of_clauses"] = np.array([size])
        arrays["neurons"], arrays["signs"] = rng.integers(0, 6, size), rng.choice([-1, 1], size)
        tree = _pick(rng, [[-1], [0, -1, -1], [-2, -1, -1], [1, 0, -1, -1, -1]])
        arrays["nodes"] = np.array(tree)
        arrays["places"] = rng.integers(-4, 5, sum(v >= 0 for v in tree))
        arrays["theta"] = rng.integers(0, 4, tree.count(-1) * (size + 1))
        arrays["theta"][size :: size + 1] = 0
    return None


def forge_patterns(rng: Random, sections: Sections) -> None:
    """Claim robustness with a small tree of first-layer signs for all targets, or some of them.

    What is known about signs before the trees may stay.
    """
    fields = sections[0].fields
    claim = fields["property"]
    fields["verdict"] = "robust"
    number = _targets(claim)
    v, w = int(rng.integers(4)), int(rng.integers(4))
    tree = _pick(rng, [[-1], [v, -1, -1], [v, w, -1, -1, -1], [v, w, -1, -1, w, -1, -1]])
    facts = [
        s for s in sections[1:] if s.name in ("clashes", "clauses", "branched") and rng.integers(4)
    ]
    chosen = [k for k in range(number) if rng.integers(8)]
    sections[1:] = [
        *facts,
        Section("patterns", {"targets": chosen}),
        Section("tree", {}, {"variables": np.array(tree)}),
    ]


def forge_elimination(rng: Random, sections: Sections) -> None:
    """Claim robustness by a random elimination for all targets, or some of them."""
    fields = sections[0].fields
    number = _targets(fields["property"])
    fields["verdict"] = "robust"
    order = rng.permutation(int(rng.integers(1, 14))).tolist()
    parts = []
    for k, v in enumerate(order):
        for _ in range(int(rng.integers(1, 3))):
            share = float(_pick(rng, [1.0, 1.0, 0.6]))
            parts.append([v, *(w for w in order[k + 1 :] if rng.random() < share)])
    facts = [
        s for s in sections[1:] if s.name in ("clashes", "clauses", "branched") and rng.integers(4)
    ]
    arrays = {
        "sizes": np.array([len(part) for part in parts]),
        "scopes": np.array([v for part in parts for v in part]),
    }
    sections[1:] = [
        *facts,
        Section("elimination", {"targets": [k for k in range(number) if rng.integers(8)]}),
        Section("buckets", {}, arrays),
    ]


def change_part(rng: Random, sections: Sections) -> None:
    """Remove or repeat a part of a bucket, or one of its variables, consistently."""
    section = _pick(rng, [s for s in sections if s.name == "buckets"] or sections)
    sizes = section.arrays.get("sizes")
    if section.name != "buckets" or sizes is None:
        return rearrange(rng, sections)
    scopes = section.arrays["scopes"]
    parts = [p.tolist() for p in np.split(scopes, np.cumsum(sizes.astype(int))[:-1])]
    k, part = int(rng.integers(len(parts))), list(_pick(rng, parts))
    change = int(rng.integers(4))
    if change == 0:
        del parts[k]
    elif change == 1:
        parts.insert(k, part)
    elif change == 2:
        parts[k].pop(int(rng.integers(len(parts[k]))))
    else:
        parts[k].append(int(_pick(rng, part)))
    section.arrays["sizes"] = np.array([len(p) for p in parts])
    section.arrays["scopes"] = np.array([v for p in parts for v in p])
    return None


def forge_refutation(rng: Random, sections: Sections) -> None:
    """Claim robustness by random clauses for all targets, or some of them."""
    fields = sections[0].fields
    number = _targets(fields["property"])
    fields["verdict"] = "robust"
    sizes = [*rng.integers(1, 4, int(rng.integers(4))).tolist(), 0]
    facts = [s for s in sections[1:] if s.name in FACTS and rng.integers(4)]
    arrays = {"sizes": np.array(sizes), "literals": rng.integers(0, 24, sum(sizes))}
    sections[1:] = [
        *facts,
        Section("refutation", {"targets": [k for k in range(number) if rng.integers(8)]}),
        Section("lemmas", {}, arrays),
    ]


def change_lemma(rng: Random, sections: Sections) -> None:
    """Remove, repeat, shorten or lengthen a clause of a refutation, consistently."""
    section = _pick(rng, [s for s in sections if s.name == "lemmas"] or sections)
    sizes, literals = section.arrays.get("sizes"), section.arrays.get("literals")
    if section.name != "lemmas" or sizes is None or literals is None or not sizes.size:
        return rearrange(rng, sections)
    clauses = [p.tolist() for p in np.split(literals, np.cumsum(sizes.astype(int))[:-1])]
    k, change = int(rng.integers(len(clauses))), int(rng.integers(5))
    if change == 0:
        del clauses[k]
    elif change == 1:
        clauses.insert(k, list(_pick(rng, clauses)))
    elif change == 2 and clauses[k]:
        clauses[k].pop(int(rng.integers(len(clauses[k]))))
    elif change == 3 and clauses[k]:
        clauses[k][int(rng.integers(len(clauses[k])))] ^= 1
    else:
        clauses[k].append(int(rng.integers(0, 24)))
    section.arrays["sizes"] = np.array([len(c) for c in clauses], dtype=np.int64)
    section.arrays["literals"] = np.array([v for c in clauses for v in c], dtype=np.int64)
    return None


def borrow(rng: Random, sections: Sections, others: Sequence[Sections]) -> None:
    """Take a section of another proof."""
    other = _pick(rng, list(others))
    sections[int(rng.integers(len(sections)))] = copy.deepcopy(_pick(rng, other))


CHANGES: list[Callable[[Random, Sections], None]] = [
    *[change_number] * 6, rearrange, rearrange, drop_leaf, drop_clause, shuffle_sections,
    change_field, change_field, larger_region, change_claim, change_claim, smaller_region,
    turn_clauses, forge, forge, forge_branched, forge_branched, forge_patterns, forge_patterns,
    forge_elimination, change_part, forge_refutation, change_lemma,
]  # fmt: skip


def mutant(rng: Random, valid: Sections, others: Sequence[Sections]) -> Sections:
    """Return a certificate with one or two changes."""
    sections = copy.deepcopy(valid)
    for _ in range(int(rng.integers(1, 3))):
        if not sections:
            break
        if rng.integers(20) == 0:
            borrow(rng, sections, others)
        else:
            # A second change may meet what the first one has broken.
            with suppress(LookupError, ValueError, OverflowError, TypeError, MemoryError):
                _pick(rng, CHANGES)(rng, sections)
    return sections
