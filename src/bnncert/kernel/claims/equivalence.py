"""Claims about the classes of two networks, which the caller names.

The details are the hashes of both networks (`networks`), the `verdict` (equal or different), `how`
it is shown, the `classes` of A and B if they are fixed, the `region` (None: all inputs), and for a
product the `excluded` classes and whether the conditions compare `all_scores`.

* normal forms: the normal forms are equal.
* neurons: in the product of both networks, in which equal neurons are one neuron, the scores of
  both are the same up to what does not change a class (`bnncert.kernel.rules.disagreement`).
* one class: two parts show that each network has the same class on the whole region.
* product: a part about the product shows that no pair of different classes occurs.  Parts before it
  may show that a network does not give some classes, because their scores are below that of a
  `label`; `excluded` has the label and the classes of A and B.
* point: a part about the product is an input at which the two classes occur.  If sign(0) may be
  either, each network has its class there however its ties are decided.

In the product, neurons that both networks have decide their ties alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.kernel.budget import timed
from bnncert.kernel.claims.claim import ClaimPart, ClaimParts, Shown, StatedRegion, Subject
from bnncert.kernel.container import RejectedError, Section, UnreadableError
from bnncert.kernel.rules.disagreement import (
    disagreement,
    disagreements,
    no_violation,
    scores_agree,
)
from bnncert.kernel.rules.product import product_network
from bnncert.kernel.statement import SIGN_OF_ZERO, classification
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


class EquivalenceClaim:
    """The claim about the classes of two networks."""

    def __init__(self, section: Section, subject: Subject) -> None:
        found = section.details(NAMES)
        self._one, self._two = _networks(found["networks"], subject)
        self._how, classes, region = found["how"], found["classes"], found["region"]
        self._section, self._found = section, found
        if not isinstance(self._how, str) or self._how not in WAYS:
            raise UnreadableError("section claim: the comparison is shown in an unknown way")
        verdict, has_classes, has_region = WAYS[self._how]
        if found["verdict"] != verdict:
            raise RejectedError("the claim has another verdict than its proof")
        if has_classes != (classes is not None) or has_region not in (None, region is not None):
            raise UnreadableError("section claim: classes or region do not belong to it")
        excludes = found["excluded"] is not None or found["all_scores"] is not True
        if excludes and self._how != "product":
            raise UnreadableError(
                "section claim: excluded classes or all_scores do not belong to it"
            )
        self._classes = _classes(classes, self._one, self._how) if has_classes else (0, 0)
        self._region = None if region is None else StatedRegion.read(section, self._one)

    def parts(self) -> ClaimParts:
        """Yield the parts of the way in which the claim is shown."""
        one, two = self._one, self._two
        if self._how == "normal forms":
            if one.content_hash != two.content_hash:
                raise RejectedError("the normal forms differ")
        elif self._how == "neurons":
            if not scores_agree(product_network(one, two, box=self._box(), alike=True)):
                raise RejectedError("the scores of the two networks are different functions")
        elif self._how == "one class":
            label = self._classes[0]
            others = [k for k in range(one.classes) if k != label]
            for network in (one, two):
                yield self._below(network, label, others)
        elif self._how == "point":
            different = no_violation([disagreement(one.classes, *self._classes)])
            both = product_network(one, two, alike=True).network
            proved = yield self._part(both, different, "not_robust")
            for net, label in zip((one, two), self._classes, strict=True):
                _refuse_other_class(net, proved.point, label)
        else:
            yield from self._product_parts()

    def _product_parts(self) -> ClaimParts:
        """Yield the parts by which no pair of different classes occurs."""
        count, excluded = self._one.classes, self._found["excluded"]
        all_scores = self._found["all_scores"]
        if not isinstance(all_scores, bool):
            raise UnreadableError("section claim: all_scores is neither true nor false")
        possible = [set(range(count)), set(range(count))]
        if excluded is not None:
            if not isinstance(excluded, dict) or excluded.keys() != {"label", "A", "B"}:
                raise UnreadableError("section claim: excluded is not label, A and B")
            for name, network, left in zip("AB", (self._one, self._two), possible, strict=True):
                if excluded[name] != []:
                    yield self._below(network, excluded["label"], excluded[name])
                    # The part has shown that these are classes other than the label.
                    left -= set(excluded[name])
        product = product_network(self._one, self._two, alike=True)
        pairs = disagreements(count, *possible, all_scores=all_scores)
        yield self._part(product.network, no_violation(conditions for _, _, conditions in pairs))

    def _part(self, network: Network, goal: dict[str, Any], verdict: str = "robust") -> ClaimPart:
        assert self._region is not None
        return ClaimPart(network, self._region.section, goal, verdict)

    def _below(self, network: Network, label: Any, classes: Any) -> ClaimPart:
        """Return the part that some classes score less than the label on the region."""
        return self._part(network, classification(label, classes, "violation"))

    def _box(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the bounds of a region that is a box; None for all inputs."""
        if self._region is None:
            return None
        if self._found["region"] != {"region": "box"}:
            raise UnreadableError("section claim: neurons are compared on a box or for all inputs")
        lo, hi = (self._section.floats(name, self._one.inputs) for name in ("lo", "hi"))
        return lo, hi

    def shown(self) -> Shown:
        """Return in words what the networks have in common, or where they differ."""
        one, two, how = self._one, self._two, self._how
        zeros = {one.sign_zero, two.sign_zero}
        zero = zeros.pop() if len(zeros) == 1 else "mixed"
        settings = ["real arithmetic", SIGN_OF_ZERO[zero], "of equal scores the first counts"]
        is_enclosed = _is_enclosed(one) or _is_enclosed(two)
        numbers = "exact"
        if is_enclosed and how in ("normal forms", "neurons", "product"):
            numbers = "enclosed"
            settings.append(ENCLOSED)
        inputs, named, every = "shown", dict[str, FloatArray](), "for all inputs"
        some = "all inputs"
        if self._region is not None:
            some, named = self._region.place, self._region.space.named
            every = f"for every input in {some}"
            # A counterexample is an input.
            inputs = "shown" if how == "point" else self._region.inputs
        if inputs != "shown":
            settings.append("not shown: that the region has an input")
        # Robustness of each network and determined classes hold however ties are decided.
        tied = any(layer.sign_zero == "either" for layer in (*one.layers, *two.layers))
        alike = " if their ties have the same signs" if tied else ""
        if tied and how in ("neurons", "product"):
            settings.append(ALIKE)
        first, second = self._classes
        texts = {
            "normal forms": "the two networks have the same normal form, so they give the same "
            f"class for all inputs{alike}",
            "one class": f"{every}: both networks give class {first}",
            "point": f"for some input in {some}: the first network gives class {first} and the "
            f"second one class {second}",
        }
        text = texts.get(how, f"{every}: both networks give the same class")
        assumptions = {
            "sign_zero": zero,
            "arithmetic": "real",
            "ties": "the first of equal scores",
            "numbers": numbers,
            "inputs": inputs,
        }
        words = f"{text} ({', '.join(settings)})"
        return Shown(words, f"networks_{WAYS[how][0]}", assumptions, named, about_two=True)


def _networks(hashes: Any, subject: Subject) -> tuple[Network, Network]:
    """Return the networks that the caller names; the claim has to be about them."""
    if subject.other is None:
        raise RejectedError("it is about two networks; name both (--model A --model B)")
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


def _refuse_other_class(network: Network, point: Sequence[Fraction], label: int) -> None:
    """Reject an input at which ties can be decided so that a network has another class."""
    count = 0
    for pattern in timed(network.exact_patterns(point)):
        scores, count = network.output.exactly(pattern[-1]), count + 1
        if scores.index(max(scores)) != label:
            raise RejectedError("the class of a network at the input depends on its ties")
    # With as many patterns as this, some may be missing.
    if not 0 < count < MOST_TIE_CHOICES:
        raise RejectedError("the class of a network at the input is not determined")


def _is_enclosed(network: Network) -> bool:
    """Whether a number of the network is irrational."""
    low, high = network.layers[0].enclosure
    return bool(np.any(low != high) or np.any(network.output.error > 0))
