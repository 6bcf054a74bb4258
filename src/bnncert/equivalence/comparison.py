"""The comparison of two networks, from the cheapest argument to the most expensive one.

1. The normal forms are equal.
2. The networks have the same neurons in another form (`bnncert.network.product`).
3. An input at which the classes differ is found among given points, random points and points at
   decision boundaries.
4. Each network has only one class on the region, the same one: two robustness questions.
5. A method decides the product of both networks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.description.model import SignZero
from bnncert.equivalence.boundary import BoundarySearch
from bnncert.equivalence.certificate import CertificateError, ClaimWriter
from bnncert.equivalence.classes import UNDETERMINED, exact_class
from bnncert.equivalence.difference import Difference, difference_at, difference_problem
from bnncert.equivalence.inputs import compare_inputs
from bnncert.equivalence.normal_forms import compare_layers
from bnncert.equivalence.result import ComparisonInterrupt, NetworkComparison
from bnncert.errors import InputError
from bnncert.methods import REGISTRY, Options, Progress
from bnncert.network import Network
from bnncert.network.equal_scores import scores_agree
from bnncert.network.product import product_network
from bnncert.problem import Problem, robustness
from bnncert.regions import Box, Region
from bnncert.solving import solve
from bnncert.verdict import Result, VerificationInterrupt

#: Share of the time for the search of a difference, its seconds at most, and share of the rest for
#: the questions whether a network has one class.
SEARCH_SHARE, MOST_SEARCH_SECONDS, ONE_CLASS_SHARE = 0.2, 10.0, 0.5

#: The scope of an answer that does not depend on the region.
ALL_INPUTS = "all inputs"

#: The least time limit of a step.
LEAST_SECONDS = 1e-3


def compare_networks(
    first: Network,
    second: Network,
    region: Region | None = None,
    *,
    inputs: npt.ArrayLike | None = None,
    sign_zero: SignZero | None = None,
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
    first, second
        The networks A and B, with the same numbers of inputs and classes.
    region
        The inputs that count.  Without it, the given `inputs` count; without these, the data box,
        which is the intersection of both boxes if the networks state different ones.
    inputs
        Inputs, one for each row.  Without a region, both networks are evaluated exactly at all of
        them.  With a region, they are points from which a difference is searched.
    sign_zero
        Replaces the sign(0) of both models: "plus", "minus" or "either".
    method
        The method that decides about the product of both networks, see ``bnncert methods``.
    timeout
        Seconds for the whole question; None sets no limit.
    options, progress
        Those of :func:`verify`.
    certificate
        The file for a certificate, which ``bnncert check --other`` accepts.

    Returns
    -------
    NetworkComparison
        The status, where the normal forms differ, and an input at which the classes differ if there
        is one.  It is printed as a table.

    Raises
    ------
    InputError
        If the networks do not have the same numbers of inputs and classes, or as :func:`verify`.
    ComparisonInterrupt
        On Ctrl-C; its `result` is what was known by then.

    Examples
    --------
    >>> import bnncert
    >>> a = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> b = bnncert.Network.from_arrays([[[1, -1], [1, 1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> bnncert.compare_networks(a, b).status
    'equal'
    >>> c = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 1], [0, 0]])
    >>> found = bnncert.compare_networks(a, c, bnncert.Box([-1, -1], [1, 1]), timeout=60)
    >>> found.status, found.first_difference
    ('different', 'layer 1, neuron 1: the bias is 0 in A and 1 in B')
    >>> bnncert.compare_networks(a, c, bnncert.Box([0, 0], [1, 0.25]), timeout=60).status
    'equal'
    """
    first, second = (net.with_sign_zero(sign_zero) for net in (first, second))
    _refuse(first, second, region, method)
    (options or Options()).check()
    deadline = Deadline(timeout)
    rows = None if inputs is None else first.flatten(inputs)[0]
    asked = region
    if region is None and rows is None:
        asked = _data_box(first, second)
    scope = _scope(asked, rows, default=region is None)
    with ClaimWriter.into(certificate, first, second) as writer:
        comparison = _Comparison(
            first, second, asked, rows, scope, method, deadline, options, progress, writer
        )
        return comparison.answer()


def _refuse(first: Network, second: Network, region: Region | None, method: str) -> None:
    """Raise if the networks cannot be compared."""
    REGISTRY.make(method)
    for what, one, two in (
        ("inputs", first.inputs, second.inputs),
        ("classes", first.classes, second.classes),
    ):
        if one != two:
            raise InputError(
                f"{second.source}: {two} {what}, but {first.source} has {one}; networks with the "
                f"same number of {what} can be compared"
            )
    if region is not None and region.size != first.inputs:
        raise InputError(f"the region has {region.size} inputs, the networks {first.inputs}")


def _data_box(first: Network, second: Network) -> Box | None:
    """Return the intersection of the data boxes; None if an input is not bounded."""
    bounds = [
        [b for b in (a, c) if b is not None]
        for a, c in ((first.input_lo, second.input_lo), (first.input_hi, second.input_hi))
    ]
    if not all(bounds):
        return None
    lo, hi = np.max(bounds[0], axis=0), np.min(bounds[1], axis=0)
    if np.any(lo > hi):
        i = int(np.flatnonzero(lo > hi)[0])
        raise InputError(
            f"{second.source}: its data box and that of {first.source} have no input in common "
            f"(input {i} is at least {lo[i]:.9g} and at most {hi[i]:.9g})"
        )
    return Box(lo, hi)


def _scope(region: Region | None, rows: FloatArray | None, *, default: bool) -> str:
    if region is None:
        return ALL_INPUTS if rows is None else f"the {rows.shape[0]} given inputs"
    return f"the data box ({region.describe()})" if default else region.describe()


@dataclass(eq=False)
class _Comparison:
    """One comparison; `known` is what has been found so far."""

    first: Network
    second: Network
    region: Region | None
    rows: FloatArray | None
    scope: str
    method: str
    deadline: Deadline
    options: Options | None
    progress: Progress | None
    writer: ClaimWriter | None

    def answer(self) -> NetworkComparison:
        """Return the answer; on Ctrl-C raise what is known."""
        self.started = time.monotonic()
        layers = compare_layers(self.first, self.second)
        self.known = NetworkComparison("unknown", "", self.scope, layers, (), 0.0)
        self._note_enclosures()
        try:
            self._decide()
        except VerificationInterrupt as stop:
            known = replace(self.known, targets=stop.result.targets)
            raise ComparisonInterrupt(self._timed(known)) from stop
        except KeyboardInterrupt as stop:
            raise ComparisonInterrupt(self._timed(self.known)) from stop
        except OutOfTimeError:
            self._update(status="timeout")
        return self._timed(self.known)

    def _timed(self, known: NetworkComparison) -> NetworkComparison:
        return replace(known, seconds=time.monotonic() - self.started)

    def _decide(self) -> None:
        if all(layer.is_equal for layer in self.known.layers):
            self._update(status="identical", how="normal forms", scope=ALL_INPUTS)
            self._certify(self._identity)
            return
        self.product = product_network(self.first, self.second)
        self._update(shared=self.product.shared)
        if self._same_neurons():
            return
        if self.first.classes < 2:
            raise InputError(
                f"{self.first.source}: the network has a single score; classes can be compared "
                "only if there are at least two"
            )
        if self.region is not None:
            self._on_region(self.region)
        elif self.rows is not None:
            self._at_inputs(self.rows)
        else:
            note = "the networks state no data box; name the inputs that count"
            self._note(note)

    def _identity(self, writer: ClaimWriter) -> str:
        """Write that the normal forms are equal, as a checker sees it."""
        if self.first.content_hash == self.second.content_hash:
            return writer.write("normal forms")
        # The files state differently what has no effect, such as sign(0) where no sum is 0.
        if scores_agree(product_network(self.first, self.second)):
            return writer.write("neurons")
        raise CertificateError("no certificate: the normal forms are stated differently")

    # -- the steps ------------------------------------------------------------------------

    def _same_neurons(self) -> bool:
        """Whether the scores are the same functions, for all inputs or on the region."""
        box = None
        if not scores_agree(self.product):
            if self.region is None:
                return False
            box = self.region.lo, self.region.hi
            if not scores_agree(product_network(self.first, self.second, box=box)):
                return False
        scope = ALL_INPUTS if box is None else self.scope
        self._update(status="equal", how="neurons", scope=scope)
        region = None if box is None else Box(*box)
        self._certify(lambda writer: writer.write("neurons", region=region))
        return True

    def _at_inputs(self, rows: FloatArray) -> None:
        """Compare the exact classes of the given inputs."""
        found = compare_inputs(self.first, self.second, rows, self.deadline, self.progress)
        self._update(inputs=found)
        if found.undetermined.size:
            self._note(
                f"the class of {found.undetermined.size} inputs is not determined (the first is "
                f"input {int(found.undetermined[0])})"
            )
        if found.differing.size:
            row = rows[int(found.differing[0])]
            point = Box(row, row)
            difference = difference_at(self.first, self.second, point, row)
            assert difference is not None
            self._different(difference, point)
        elif found.count < rows.shape[0]:
            self._update(status="timeout")
            self._note(f"{found.count} of {rows.shape[0]} inputs were evaluated in time")
        elif not found.undetermined.size:
            self._update(status="equal", how="inputs")
            if self.writer is not None:
                self._note("no certificate: the evaluation of all inputs is exact")

    def _on_region(self, region: Region) -> None:
        """Search for a difference on the region, then for a proof that there is none."""
        search = BoundarySearch(self.product, region, (self.options or Options()).seed)
        left = self.deadline.remaining()
        end = self.deadline.within(min(MOST_SEARCH_SECONDS, SEARCH_SHARE * left))
        found = search.run(self.rows, end, self.progress)
        if found is None and search.one_class is not None:
            found = self._one_class(region)
        if found is None and self.known.status == "unknown":
            found = self._product_question(region)
        if found is not None:
            self._different(found, region)

    def _one_class(self, region: Region) -> Difference | None:
        """Try to prove that both networks have the class of the centre everywhere."""
        center = region.settle(region.center)
        if center is None:
            return None
        label = exact_class(self.first, center)
        if label == UNDETERMINED or exact_class(self.second, center) != label:
            return difference_at(self.first, self.second, region, center)
        left = self.deadline.remaining()
        end = self.deadline.within(None if left == np.inf else ONE_CLASS_SHARE * left)
        complete = True
        for name, network in (("A", self.first), ("B", self.second)):
            result = self._solve(robustness(network, region, label), network, name, end)
            if result.status != "robust":
                return self._at_counterexample(region, result)
            complete = complete and result.certificate is not None
        self._update(status="equal", how="one class")
        if complete:
            both, parts = (label, label), ("A", "B")
            self._certify(lambda w: w.write("one class", region=region, classes=both, parts=parts))
        return None

    def _product_question(self, region: Region) -> Difference | None:
        """Decide about the product of both networks."""
        problem = difference_problem(self.product, region)
        result = self._solve(problem, self.product.network, "product", self.deadline)
        self._update(targets=result.targets)
        if result.status == "robust":
            self._update(status="equal", how="product")
            if result.certificate is not None:
                self._certify(lambda w: w.write("product", region=region, parts=("product",)))
            return None
        found = self._at_counterexample(region, result)
        if result.status == "not_robust" and found is None:
            self._note("the classes at the input that was found are equal or not determined")
        elif result.status == "timeout":
            self._update(status="timeout")
        return found

    def _solve(self, problem: Problem, network: Network, name: str, end: Deadline) -> Result:
        left = max(end.remaining(), LEAST_SECONDS)
        wanted = None if self.writer is None else self.writer.part(name, network)
        result = solve(
            [problem],
            self.method,
            None if left == np.inf else left,
            self.options,
            self.progress,
            wanted=wanted,
        )
        if result.status == "robust" and wanted is not None and result.certificate is None:
            self._note(result.notes[-1] if result.notes else "no certificate could be written")
        return result

    def _at_counterexample(self, region: Region, result: Result) -> Difference | None:
        """Return the difference at a counterexample, if there is one."""
        found = result.counterexample
        if found is None:
            return None
        return difference_at(self.first, self.second, region, found.point, found.exact)

    # -- what is known --------------------------------------------------------------------

    def _different(self, found: Difference, region: Region) -> None:
        self._update(status="different", how="inputs", difference=found)
        self._certify(lambda writer: writer.write_difference(self.product, region, found))

    def _certify(self, write: Callable[[ClaimWriter], str]) -> None:
        """Write the certificate if one is wanted; the answer stands if that fails."""
        if self.writer is None:
            return
        try:
            self._update(certificate=write(self.writer))
        except CertificateError as error:
            self._note(str(error))

    def _update(self, **fields: Any) -> None:
        self.known = replace(self.known, **fields)

    def _note(self, text: str) -> None:
        if text not in self.known.notes:
            self._update(notes=(*self.known.notes, text))

    def _note_enclosures(self) -> None:
        """Remark on irrational numbers, which are compared as the floats that enclose them."""
        layers = [net.layers[0].enclosure for net in (self.first, self.second)]
        counts = [int(np.count_nonzero(low != high)) for low, high in layers]
        if any(counts):
            self._note(
                f"{counts[0]} first-layer thresholds of A and {counts[1]} of B are irrational and "
                "compared as the floats that enclose them"
            )
