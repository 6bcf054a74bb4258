"""Claims about the classes of two networks, which the caller names.

The details are the hashes of both networks (`networks`), the `verdict` (equal or different), `how`
it is shown, the `classes` of A and B if they are fixed, the `region` (None: all inputs), and for a
product the `excluded` classes and whether the conditions compare `all_scores`.

* normal forms: the normal forms are equal.
* neurons: in the product of both networks, in which equal neurons are one neuron, the scores of
  both are the same up to what does not change a class (`bnncert.kernel.rules.equal_scores`).
* one class: two parts show that each network has the same class on the whole region.
* product: a part about the product shows that no pair of different classes occurs.  Parts before it
  may show that a network does not give some classes, because their scores are below that of a
  `label`; `excluded` has the label and the classes of A and B.
* point: a part about the product is an input at which the two classes occur.  If sign(0) may be
  either, each network has its class there however its ties are decided.

In the product, neurons that both networks have decide their ties alike.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.kernel.claims.stated_region import no_violation, statement_on
from bnncert.kernel.claims.subject import Shown, Subject, details
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.parts import Parts
from bnncert.kernel.rules.disagreement import disagreement, disagreements
from bnncert.kernel.rules.equal_scores import scores_agree
from bnncert.kernel.rules.product import product_network
from bnncert.kernel.space import read_space
from bnncert.kernel.statement import SIGN_OF_ZERO, Statement
from bnncert.model.network import MOST_TIE_CHOICES, Network

NAMES = ("networks", "verdict", "how", "classes", "region", "excluded", "all_scores")

#: The verdict of each way to show a claim, and whether it fixes classes and has a region.
WAYS: dict[str, tuple[str, bool, bool | None]] = {
    "normal forms": ("equal", False, False),
    "neurons": ("equal", False, None),
    "one class": ("equal", True, True),
    "product": ("equal", False, True),
    "point": ("different", True, True),
}

#: What claims say about irrational numbers if they rely on their enclosures.
ENCLOSED = "irrational numbers that the same floats enclose count as equal"

#: What claims about the product say if sign(0) may be either.
ALIKE = "at ties, neurons that both networks have take the same sign"


def check_equivalence(section: Section, parts: Parts, subject: Subject) -> Shown:
    """Check a claim about the classes of two networks."""
    found = details(section, NAMES)
    one, two = _networks(found["networks"], subject)
    how, classes, region = found["how"], found["classes"], found["region"]
    if not isinstance(how, str) or how not in WAYS:
        raise UnreadableError("section claim: the comparison is shown in an unknown way")
    verdict, has_classes, has_region = WAYS[how]
    if found["verdict"] != verdict:
        raise RejectedError("the claim has another verdict than its proof")
    if has_classes != (classes is not None) or has_region not in (None, region is not None):
        raise UnreadableError("section claim: classes or region do not belong to it")
    if how != "product" and (found["excluded"] is not None or found["all_scores"] is not True):
        raise UnreadableError("section claim: excluded classes or all_scores do not belong to it")
    chosen = _classes(classes, one, how) if has_classes else (0, 0)
    statement: Statement | None = None
    place, named = "all inputs", dict[str, FloatArray]()
    if region is not None:
        space, place, _ = read_space(statement_on(section, region, "robust", {}), one)
        named = space.named
    if how == "normal forms":
        if one.content_hash != two.content_hash:
            raise RejectedError("the normal forms differ")
    elif how == "neurons":
        box = None if region is None else _box(section, region, one)
        if not scores_agree(product_network(one, two, box=box, alike=True)):
            raise RejectedError("the scores of the two networks are different functions")
    elif how == "one class":
        others = [k for k in range(one.classes) if k != chosen[0]]
        for network in (one, two):
            statement = parts.take(network, _below(section, region, chosen[0], others))
    elif how == "point":
        network = product_network(one, two, alike=True).network
        goal = no_violation([disagreement(one.classes, *chosen)])
        parts.take(network, statement_on(section, region, "not_robust", goal))
        for net, label in zip((one, two), chosen, strict=True):
            _refuse_other_class(section, net, parts.point, label)
    else:
        statement = _check_product(section, parts, one, two)
    inputs = "shown" if statement is None else statement.assumptions["inputs"]
    return replace(_shown(how, place, chosen, inputs, one, two), named=named)


def _networks(hashes: Any, subject: Subject) -> tuple[Network, Network]:
    """Return the networks that the caller names; the claim has to be about them."""
    if subject.other is None:
        raise RejectedError("it is about two networks; name the second one (--other)")
    one, two = subject.network, subject.other
    if hashes == [two.content_hash, one.content_hash] and one.content_hash != two.content_hash:
        raise RejectedError("the two networks are named in the other order")
    if hashes != [one.content_hash, two.content_hash]:
        raise RejectedError("it is about other networks, or about another sign(0)")
    if one.inputs != two.inputs or one.classes != two.classes:
        raise RejectedError("the networks differ in their numbers of inputs or classes")
    return one, two


def _classes(value: Any, network: Network, how: str) -> tuple[int, int]:
    known = isinstance(value, list) and len(value) == 2 and all(type(k) is int for k in value)
    if not known or not all(0 <= k < network.classes for k in value):
        raise UnreadableError("section claim: classes that the networks do not have")
    if (value[0] == value[1]) != (how == "one class"):
        raise RejectedError("the classes do not belong to the verdict")
    return value[0], value[1]


def _box(section: Section, region: Any, network: Network) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of a region that is a box."""
    if region != {"region": "box"}:
        raise UnreadableError("section claim: neurons are compared on a box or for all inputs")
    return section.floats("lo", network.inputs), section.floats("hi", network.inputs)


def _refuse_other_class(
    section: Section, network: Network, point: list[Fraction], label: int
) -> None:
    """Reject an input at which ties can be decided so that a network has another class."""
    count = 0
    for pattern in section.budget.timed(network.exact_patterns(point)):
        scores, count = network.output.exactly(pattern[-1]), count + 1
        if scores.index(max(scores)) != label:
            raise RejectedError("the class of a network at the input depends on its ties")
    # With as many patterns as this, some may be missing.
    if not 0 < count < MOST_TIE_CHOICES:
        raise RejectedError("the class of a network at the input is not determined")


def _below(section: Section, region: Any, label: int, classes: list[int]) -> Section:
    """Return the statement that some classes score less than the label on the region."""
    goal = {"kind": "classification", "label": label, "rivals": classes, "ties": "violation"}
    return statement_on(section, region, "robust", goal)


def _check_product(section: Section, parts: Parts, one: Network, two: Network) -> Statement:
    """Check that no pair of different classes occurs; return what the last part states."""
    found, count = section.fields["details"], one.classes
    region, excluded, all_scores = found["region"], found["excluded"], found["all_scores"]
    if not isinstance(all_scores, bool):
        raise UnreadableError("section claim: all_scores is neither true nor false")
    possible = [set(range(count)), set(range(count))]
    if excluded is not None:
        if not isinstance(excluded, dict) or excluded.keys() != {"label", "A", "B"}:
            raise UnreadableError("section claim: excluded is not label, A and B")
        for name, network, left in zip("AB", (one, two), possible, strict=True):
            if excluded[name] != []:
                parts.take(network, _below(section, region, excluded["label"], excluded[name]))
                # The part has shown that these are classes other than the label.
                left -= set(excluded[name])
    product = product_network(one, two, alike=True)
    pairs = disagreements(count, *possible, all_scores=all_scores)
    goal = no_violation(conditions for _, _, conditions in pairs)
    return parts.take(product.network, statement_on(section, region, "robust", goal))


def _shown(
    how: str, place: str, classes: tuple[int, int], inputs: str, one: Network, two: Network
) -> Shown:
    """Return what an accepted claim shows, in words."""
    zeros = {one.sign_zero, two.sign_zero}
    zero = zeros.pop() if len(zeros) == 1 else "mixed"
    named = ["real arithmetic", SIGN_OF_ZERO[zero]]
    named.append("of equal scores the first counts")
    numbers = "exact"
    if how in ("normal forms", "neurons", "product") and (_is_enclosed(one) or _is_enclosed(two)):
        numbers = "enclosed"
        named.append(ENCLOSED)
    if inputs != "shown":
        named.append("not shown: that the region has an input")
    # Robustness of each network and determined classes hold however ties are decided.
    tied = any(layer.sign_zero == "either" for layer in (*one.layers, *two.layers))
    alike = " if their ties have the same signs" if tied else ""
    if tied and how in ("neurons", "product"):
        named.append(ALIKE)
    texts = {
        "normal forms": "the two networks have the same normal form, so they give the same class "
        f"for all inputs{alike}",
        "one class": f"for every input in {place}: both networks give class {classes[0]}",
        "point": f"for some input in {place}: the first network gives class {classes[0]} and the "
        f"second one class {classes[1]}",
    }
    every = "for all inputs" if place == "all inputs" else f"for every input in {place}"
    text = texts.get(how, f"{every}: both networks give the same class")
    assumptions = {
        "sign_zero": zero,
        "arithmetic": "real",
        "ties": "the first of equal scores",
        "numbers": numbers,
        "inputs": inputs,
    }
    verdict = "networks_" + WAYS[how][0]
    return Shown(f"{text} ({', '.join(named)})", verdict, assumptions, {}, about_two=True)


def _is_enclosed(network: Network) -> bool:
    """Whether a number of the network is irrational."""
    low, high = network.layers[0].enclosure
    return bool(np.any(low != high) or np.any(network.output.error > 0))
