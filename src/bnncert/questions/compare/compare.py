"""Whether two networks give the same class, from the cheapest argument to the most expensive one.

1. The normal forms are equal.
2. The networks have the same neurons in another form (`bnncert.kernel.rules.product`).
3. All given inputs have the same classes; or, on a region:

   a. A difference is searched among given points, random ones and points at decision boundaries.
   b. Two robustness questions exclude classes that a network cannot give on the region; if only one
      class is left, and the same one, the networks agree.
   c. A method decides about the product of both networks and the pairs of classes that are left.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.deadline import OutOfTimeError
from bnncert.engine.answer import Interrupted
from bnncert.engine.exact_classes import UNDETERMINED, exact_class
from bnncert.engine.methods import Options, Progress
from bnncert.engine.verdict import Counterexample, Result
from bnncert.errors import InputError
from bnncert.kernel.container import Section
from bnncert.kernel.rules.canonical_neurons import first_layer_neurons
from bnncert.kernel.rules.disagreement import disagreement, disagreements, scores_agree
from bnncert.kernel.rules.product import Product, product_network
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem, robustness
from bnncert.proofs.claims import claim_section
from bnncert.proofs.writing import CertificateError, write_counterexample
from bnncert.questions.compare.comparison_answer import (
    ALL_INPUTS,
    Difference,
    NetworkComparison,
    Status,
)
from bnncert.questions.compare.difference import (
    BoundarySearch,
    compare_inputs,
    condition_target,
    difference_at,
)
from bnncert.questions.compare.normal_forms import compare_layers, rounding_between
from bnncert.questions.prover import Effort, Prover, Search
from bnncert.regions import Box, Region, refuse_cover

#: Share of the time for the search of a difference, and its seconds at most; then those for the
#: questions which classes a network cannot give.
SEARCH_SHARE, MOST_SEARCH_SECONDS = 0.2, 10.0
EXCLUSION_SHARE, MOST_EXCLUSION_SECONDS = 0.3, 60.0

#: With more conditions than this for all pairs of classes, i and j are compared with each other
#: only at first.
MOST_CONDITIONS = 400


#: Relative differences of constants that look like rounding, of which a hint tells.
ROUNDING = 1e-3

#: The name of the part that shows a difference.
POINT = "point"


def compare(
    a: Network,
    b: Network,
    region: Region | None = None,
    *,
    inputs: npt.ArrayLike | None = None,
    sign_zero: SignZero | None = None,
    tolerance: float = 0.0,
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
) -> NetworkComparison:
    """Decide whether two networks, A and B, give the same class.

    The class is that of :meth:`Network.classify`, the first of those with the highest score, in
    exact arithmetic.

    Parameters
    ----------
    a, b
        The networks A and B, with the same numbers of inputs and classes.
    region
        The inputs that count.  Without it, the given `inputs` count; without these, the data box,
        which is the intersection of both boxes if the networks state different ones.
    inputs
        Inputs, one for each row.  Without a region, both networks are evaluated exactly at all of
        them.  With a region, they are points from which a difference is searched.
    sign_zero
        Replaces the sign(0) of both models: "plus", "minus" or "either".  Then neurons that both
        networks have decide their ties alike; classes differ if they do so for all choices.
    tolerance
        If the networks differ only in constants, by at most this share of their size, the answer is
        "rounding": the classes are equal except near ties, which `rounding` of the answer bounds.
    method
        The method that decides about the product of both networks, see ``bnncert methods``.
    timeout, options, progress, certificate
        Those of :func:`verify`.

    Returns
    -------
    NetworkComparison
        The status, where the normal forms differ, and an input at which the classes differ if there
        is one.  It is printed as a table.

    Raises
    ------
    InputError
        If the networks do not have the same numbers of inputs and classes, or as :func:`verify`.
    Interrupted
        As :func:`verify`.

    Examples
    --------
    >>> import bnncert
    >>> a = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> b = bnncert.Network.from_arrays([[[1, -1], [1, 1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> bnncert.compare(a, b).status
    'equal'
    >>> c = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 1], [0, 0]])
    >>> found = bnncert.compare(a, c, bnncert.Box([-1, -1], [1, 1]), timeout=60)
    >>> found.status, found.first_difference
    ('different', 'layer 1, neuron 1: the bias is 0 in A and 1 in B')
    >>> bnncert.compare(a, c, bnncert.Box([0, 0], [1, 0.25]), timeout=60).status
    'equal'
    """
    a, b = (network.with_sign_zero(sign_zero) for network in (a, b))
    # The claim is about the networks with this sign(0), so its parts do not replace it again.
    prover = Prover(Effort(method, timeout, options, progress, certificate), [a, b])
    _refuse(a, b, region)
    rows = None if inputs is None else a.flatten(inputs)[0]
    place = _data_box(a, b) if region is None and rows is None else region
    if place is None:
        scope = ALL_INPUTS if rows is None else f"the {rows.shape[0]} given inputs"
    else:
        words = place.describe()
        scope = f"the data box ({words})" if region is None else f"the {words}"
    if not 0 <= tolerance < 1:
        raise InputError(f"tolerance is {tolerance}; expected a share of a constant, as 1e-6")
    search = ComparisonSearch(prover, a, b, place, scope, rows, tolerance)
    if place is not region:
        search.note(_about_boxes(a, b))
    return search.outcome()


def _refuse(a: Network, b: Network, region: Region | None) -> None:
    """Raise if the networks cannot be compared."""
    for what, one, two in (("inputs", a.inputs, b.inputs), ("classes", a.classes, b.classes)):
        if one != two:
            raise InputError(
                f"{b.source}: {two} {what}, but {a.source} has {one}; networks with the "
                f"same number of {what} can be compared"
            )
    if region is None:
        return
    refuse_cover(region, "compare")
    if region.size != a.inputs:
        raise InputError(f"the region has {region.size} inputs, the networks {a.inputs}")


def _data_box(a: Network, b: Network) -> Box | None:
    """Return the intersection of the data boxes; None if an input is not bounded."""
    lows = [bound for bound in (a.input_lo, b.input_lo) if bound is not None]
    highs = [bound for bound in (a.input_hi, b.input_hi) if bound is not None]
    if not lows or not highs:
        return None
    lo, hi = np.max(lows, axis=0), np.min(highs, axis=0)
    if np.any(lo > hi):
        i = int(np.flatnonzero(lo > hi)[0])
        raise InputError(
            f"{b.source}: its data box and that of {a.source} have no input in common "
            f"(input {i} is at least {lo[i]:.9g} and at most {hi[i]:.9g})"
        )
    return Box(lo, hi)


def _about_boxes(a: Network, b: Network) -> str:
    """Return which data box counts if the networks state different ones, else nothing."""
    pairs = ((a.input_lo, b.input_lo), (a.input_hi, b.input_hi))
    if all(x is y if x is None or y is None else np.array_equal(x, y) for x, y in pairs):
        return ""
    for name, other in (("A", b), ("B", a)):
        if other.input_lo is None and other.input_hi is None:
            return f"only network {name} states a data box; the inputs in it count"
    return "the networks state different data boxes; inputs in both of them count"


class ComparisonSearch(Search[NetworkComparison]):
    """One comparison; `known` is the answer so far.

    `region` has the inputs that count; None if these are given inputs, or all.  On a region,
    `points` are where a difference is searched first.
    """

    def __init__(
        self,
        prover: Prover,
        a: Network,
        b: Network,
        region: Region | None,
        scope: str,
        points: FloatArray | None,
        tolerance: float = 0.0,
    ) -> None:
        self._tolerance = tolerance
        self.prover, self.a, self.b, self.region, self._given = prover, a, b, region, points
        self.known = NetworkComparison("unknown", "", scope, compare_layers(a, b), (), 0.0)
        #: The class of both networks at the centre, and those that each cannot give on the region.
        self._label = UNDETERMINED
        self._excluded: dict[str, frozenset[int]] = {"A": frozenset(), "B": frozenset()}
        self._certified: set[str] = set()
        #: The claim of the certificate with the names of its parts, and where the classes differ.
        self._claim: tuple[Section, Sequence[str]] | None = None
        self._point: tuple[Problem, Counterexample] | None = None
        bounds = [net.layers[0].enclosure for net in (a, b)]
        counts = [int(np.count_nonzero(low != high)) for low, high in bounds]
        if any(counts):
            self.note(
                f"{counts[0]} first-layer thresholds of A and {counts[1]} of B are irrational and "
                "compared as the floats that enclose them"
            )

    @cached_property
    def product(self) -> Product:
        """The product of both networks, in which equal neurons are one neuron."""
        return product_network(self.a, self.b, alike=True)

    def update(self, status: Status | None = None, **fields: Any) -> None:
        """Replace fields of the answer."""
        self.known = replace(self.known, status=status or self.known.status, **fields)

    def note(self, text: str) -> None:
        """Add a remark, once."""
        if text and text not in self.known.notes:
            self.update(notes=(*self.known.notes, text))

    def answer(self) -> NetworkComparison:
        """Add the time to what is known."""
        return replace(self.known, seconds=self.prover.deadline.elapsed())

    def certified(self, found: NetworkComparison) -> NetworkComparison:
        """Write the claim with its parts, if there is one."""
        if self._claim is None:
            return found
        if self._point is not None:
            problem, point = self._point
            try:
                write_counterexample(self.prover.file(POINT), problem, problem.network, point)
            except CertificateError as error:
                self.note(str(error))
                return self.answer()
        self.update(certificate=self.prover.finish(*self._claim))
        return self.answer()

    def run(self) -> None:
        """Compare the networks, until the time is up."""
        try:
            self._compare(self._given)
        except OutOfTimeError:
            self.update("timeout")
        apart = self.known.rounding
        if self.known.status in ("unknown", "timeout") and apart and apart.largest < ROUNDING:
            self.note(
                f"the networks differ by at most {apart.largest:.2g} of a constant's size: "
                f"--tolerance {10.0 ** math.ceil(math.log10(apart.largest)):.0e} answers up to "
                "rounding"
            )

    def _compare(self, points: FloatArray | None) -> None:
        if self._by_neurons() or self._up_to_rounding():
            return
        if self.a.classes < 2:
            raise InputError(
                f"{self.a.source}: the network has a single score; classes can be compared only if "
                "there are at least two"
            )
        if self.region is not None:
            self._on_region(self.region, points)
        elif points is not None:
            self._at_inputs(points)
        else:
            self.note(
                "the networks state no data box; name the inputs that count: --clip LO HI, or "
                "--input and --radius, or --data (in Python a region, or inputs)"
            )

    # -- neurons --------------------------------------------------------------------------

    def _by_neurons(self) -> bool:
        """Whether the normal forms are equal, or the networks have the same neurons."""
        if all(layer.is_equal for layer in self.known.layers):
            self.update("identical", how="normal forms", scope=ALL_INPUTS)
            same = self.a.content_hash == self.b.content_hash
            if same or not self.prover.wants_certificate:
                self._certify("normal forms")
            elif scores_agree(self.product):
                # The files state differently what has no effect, as sign(0) where no sum is 0.
                self._certify("neurons")
            else:
                self.note("no certificate: the normal forms are stated differently")
            return True
        self.update(shared=self.product.shared)
        if scores_agree(self.product):
            self.update("equal", how="neurons", scope=ALL_INPUTS)
            self._certify("neurons")
        elif self.region is not None and self._agree_within(self.region.lo, self.region.hi):
            self.update("equal", how="neurons")
            self._certify("neurons", Box(self.region.lo, self.region.hi))
        return self.known.status == "equal"

    def _up_to_rounding(self) -> bool:
        """Whether the networks differ by rounding only, and the tolerance accepts it."""
        apart = rounding_between(self.a, self.b, self.known.layers)
        self.update(rounding=apart)
        if not self._tolerance:
            return False
        if apart is None:
            self.note(
                "the tolerance is not used: the networks differ in more than constants of the "
                "first layer and of the output"
            )
        elif apart.largest > self._tolerance:
            self.note(
                f"the constants differ by up to {apart.largest:.2g} of their size, more than the "
                f"tolerance {self._tolerance:g}"
            )
        else:
            self.update("rounding", how="constants", scope=ALL_INPUTS)
            if self.prover.wants_certificate:
                self.note("no certificate: the classes near a tie may differ")
        return self.known.status == "rounding"

    def _agree_within(self, lo: FloatArray, hi: FloatArray) -> bool:
        """Whether the scores agree without the first-layer neurons that are constant in a box."""
        network = self.product.network
        numbers = np.arange(network.inputs)
        neurons = first_layer_neurons(network.layers[0], numbers, network.inputs, (lo, hi))
        if not neurons.constant.any():
            return False
        return scores_agree(product_network(self.a, self.b, box=(lo, hi), alike=True))

    # -- given inputs ---------------------------------------------------------------------

    def _at_inputs(self, rows: FloatArray) -> None:
        """Compare the exact classes of the given inputs."""
        prover = self.prover
        found = compare_inputs(self.a, self.b, rows, prover.deadline, prover.effort.progress)
        self.update(inputs=found)
        if found.undetermined.size:
            self.note(
                f"the class of {found.undetermined.size} inputs is not determined (the first is "
                f"input {int(found.undetermined[0])})"
            )
        if found.differing.size:
            row = rows[int(found.differing[0])]
            difference = difference_at(self.product, Box(row, row), row)
            assert difference is not None
            self.different(difference, Box(row, row))
        elif found.count < rows.shape[0]:
            self.update("timeout")
            self.note(f"{found.count} of {rows.shape[0]} inputs were evaluated in time")
        elif not found.undetermined.size:
            self.update("equal", how="inputs")
            if prover.wants_certificate:
                self.note("no certificate: all inputs were evaluated exactly")

    # -- a region -------------------------------------------------------------------------

    def _on_region(self, region: Region, points: FloatArray | None) -> None:
        """Search for a difference on the region, then for a proof that there is none."""
        deadline, progress = self.prover.deadline, self.prover.effort.progress
        search = BoundarySearch(self.product, region, self.prover.options.seed)
        seconds = min(MOST_SEARCH_SECONDS, SEARCH_SHARE * deadline.remaining())
        found = search.run(points, deadline.within(seconds), progress)
        if found is None and search.one_class is not None:
            found = self._exclude(region)
        if found is None and self.known.status == "unknown":
            found = self._decide_product(region)
        if found is not None:
            self.different(found, region)

    def _exclude(self, region: Region) -> Difference | None:
        """Find out which classes each network cannot give; return a difference found meanwhile.

        The networks agree if each can only give the class of the centre.
        """
        deadline, center = self.prover.deadline, region.settle(region.center)
        if center is None:
            return None
        self._label = label = exact_class(self.a, center)
        if label == UNDETERMINED or exact_class(self.b, center) != label:
            return difference_at(self.product, region, center)
        share = min(MOST_EXCLUSION_SECONDS, EXCLUSION_SHARE * deadline.remaining())
        for name, network in (("A", self.a), ("B", self.b)):
            # Each network has half of the time.
            end = deadline.within(share / 2)
            problem = robustness(network, region, label)
            result = self._decide(problem, name, end.remaining())
            found = self._at_counterexample(region, result)
            if found is not None:
                return found
            proved = [t.rival for t in result.targets if t.status == "robust"]
            rivals = frozenset(rival for rival in proved if rival is not None)
            self._excluded[name] = rivals
            if rivals and self.prover.wants_certificate and result.status != "robust":
                # A certificate states what was proved, and not the rest.
                targets = tuple(t for t in problem.targets if t.rival in rivals)
                result = self._decide(replace(problem, targets=targets), name, end.remaining())
            if result.status == "robust" and result.certificate is not None:
                self._certified.add(name)
        if all(len(rivals) == self.a.classes - 1 for rivals in self._excluded.values()):
            self.update("equal", how="one class")
            if self._certified == {"A", "B"}:
                self._certify("one class", region, ["A", "B"], classes=[label, label])
        return None

    def _decide_product(self, region: Region) -> Difference | None:
        """Decide about the product of both networks."""
        if self.prover.deadline.passed():
            self.update("timeout")
            return None
        network, count = self.product.network, self.a.classes
        first, second = (set(range(count)) - self._excluded[name] for name in "AB")
        pairs = sum(i != j for i in first for j in second)
        all_scores = pairs * (2 * count - 1) <= MOST_CONDITIONS
        while True:
            found = disagreements(count, first, second, all_scores=all_scores)
            targets = tuple(condition_target(network, _pair(i, j), c) for i, j, c in found)
            result = self._decide(Problem(network, region, targets), "product")
            self.update(targets=result.targets)
            difference = self._at_counterexample(region, result)
            if result.status != "not_robust" or difference is not None or all_scores:
                break
            # The scores of i and j are ordered differently, but another class is the best.
            all_scores = True
        if result.status == "robust":
            self.update("equal", how="product")
            excluded = {name: sorted(classes) for name, classes in self._excluded.items()}
            needed = [name for name, classes in excluded.items() if classes]
            if result.certificate is not None and self._certified == set(needed):
                self._certify(
                    "product",
                    region,
                    [*needed, "product"],
                    excluded={"label": self._label, **excluded} if needed else None,
                    all_scores=all_scores,
                )
        elif result.status == "not_robust" and difference is None:
            self.note("the classes at the input that was found are not determined")
        elif result.status == "timeout":
            self.update("timeout")
        return difference

    def _decide(self, problem: Problem, name: str, seconds: float = np.inf) -> Result:
        """Decide a part; note why a proof has no certificate."""
        try:
            result = self.prover.decide(problem, seconds, name=name)
        except Interrupted as stop:
            self.update(targets=stop.answer.targets)
            raise
        wanted = self.prover.wants_certificate and result.status == "robust"
        if wanted and result.certificate is None:
            self.note(self.prover.reason or "no certificate could be written")
        return result

    def _at_counterexample(self, region: Region, result: Result) -> Difference | None:
        """Return the difference at a counterexample, if there is one."""
        found = result.counterexample
        return (
            None if found is None else difference_at(self.product, region, found.point, found.exact)
        )

    def different(self, found: Difference, region: Region) -> None:
        """Record an input of the region at which the classes differ."""
        self.update("different", how="inputs", difference=found)
        if not self.prover.wants_certificate:
            return
        conditions = disagreement(self.a.classes, *found.classes)
        target = condition_target(self.product.network, _pair(*found.classes), conditions)
        problem = Problem(self.product.network, region, (target,))
        self._point = problem, found.as_counterexample(target.name)
        self._certify("point", region, [POINT], classes=list(found.classes))

    def _certify(
        self, how: str, region: Region | None = None, names: Sequence[str] = (), **fields: Any
    ) -> None:
        """State the claim, and the parts from which it follows."""
        details = {
            "networks": [self.a.content_hash, self.b.content_hash],
            "verdict": "different" if how == "point" else "equal",
            "how": how,
            **{"classes": None, "excluded": None, "all_scores": True, **fields},
        }
        self._claim = claim_section("equivalence", region, details), names


def _pair(i: int, j: int) -> str:
    """Return the name of the target that A gives class i and B class j."""
    return f"A {i}, B {j}"
