"""The comparison of two networks, from the cheapest argument to the most expensive one.

1. The normal forms are equal.
2. The networks have the same neurons in another form (`bnncert.kernel.rules.product`).
3. All given inputs have the same classes, or a region is searched (`on_region`).
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline, OutOfTimeError
from bnncert.engine.answer import Interrupted
from bnncert.engine.methods import REGISTRY, Options, Progress
from bnncert.errors import InputError
from bnncert.kernel.rules.canonical_neurons import first_layer_neurons
from bnncert.kernel.rules.disagreement import scores_agree
from bnncert.kernel.rules.product import Product, product_network
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.questions.compare.compared_inputs import compare_inputs
from bnncert.questions.compare.comparison_answer import ALL_INPUTS, NetworkComparison
from bnncert.questions.compare.difference import difference_at
from bnncert.questions.compare.equivalence_certificate import CertificateError, ClaimWriter
from bnncert.questions.compare.findings import Findings
from bnncert.questions.compare.on_region import RegionComparison
from bnncert.regions import Box, Region, refuse_cover


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
        Replaces the sign(0) of both models: "plus", "minus" or "either".  Then neurons that both
        networks have decide their ties alike; classes differ if they do so for all choices.
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
    Interrupted
        On Ctrl-C; its `answer` is what was known by then.

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
    settings = (options or Options()).check()
    deadline = Deadline(timeout)
    rows = None if inputs is None else first.flatten(inputs)[0]
    asked = region
    if region is None and rows is None:
        asked = _data_box(first, second)
    scope = _scope(asked, rows, default=region is None)
    with ClaimWriter.into(certificate, first, second) as writer:
        findings = Findings(first, second, scope, writer)
        if asked is not region and _has_other_box(first, second):
            findings.note(_about_boxes(first, second))
        try:
            product = _by_neurons(findings, asked)
            if product is None:
                pass
            elif asked is not None:
                RegionComparison(
                    findings, product, asked, rows, method, deadline, settings, progress
                ).run()
            elif rows is not None:
                _at_inputs(findings, product, rows, deadline, progress)
            else:
                findings.note("the networks state no data box; name the inputs that count")
        except Interrupted as stop:
            findings.update(targets=stop.answer.targets)
            raise Interrupted(findings.result()) from stop
        except KeyboardInterrupt as stop:
            raise Interrupted(findings.result()) from stop
        except OutOfTimeError:
            findings.update(status="timeout")
        return findings.result()


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
    if region is None:
        return
    refuse_cover(region, "compare")
    if region.size != first.inputs:
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


def _has_other_box(first: Network, second: Network) -> bool:
    """Whether the networks state different data boxes."""
    pairs = ((first.input_lo, second.input_lo), (first.input_hi, second.input_hi))
    return not all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)


def _about_boxes(first: Network, second: Network) -> str:
    """Return which data box counts if the networks state different ones."""
    for name, other in (("A", second), ("B", first)):
        if other.input_lo is None and other.input_hi is None:
            return f"only network {name} states a data box; the inputs in it count"
    return "the networks state different data boxes; inputs in both of them count"


def _scope(region: Region | None, rows: FloatArray | None, *, default: bool) -> str:
    if region is None:
        return ALL_INPUTS if rows is None else f"the {rows.shape[0]} given inputs"
    return f"the data box ({region.describe()})" if default else f"the {region.describe()}"


def _by_neurons(findings: Findings, region: Region | None) -> Product | None:
    """Return the product of networks that differ in their neurons; None if the answer is known."""
    first, second = findings.first, findings.second
    if all(layer.is_equal for layer in findings.known.layers):
        findings.update(status="identical", how="normal forms", scope=ALL_INPUTS)
        findings.certify(_identity)
        return None
    product = product_network(first, second, alike=True)
    findings.update(shared=product.shared)
    box = None
    if not scores_agree(product):
        box = None if region is None else (region.lo, region.hi)
        if box is None or not _agree_within(product, box):
            if first.classes < 2:
                raise InputError(
                    f"{first.source}: the network has a single score; classes can be compared "
                    "only if there are at least two"
                )
            return product
    findings.update(status="equal", how="neurons")
    if box is None:
        findings.update(scope=ALL_INPUTS)
    place = None if box is None else Box(*box)
    findings.certify(lambda writer: writer.write("neurons", region=place))
    return None


def _agree_within(product: Product, box: tuple[FloatArray, FloatArray]) -> bool:
    """Whether the scores agree without the first-layer neurons that are constant in a box."""
    network = product.network
    numbers = np.arange(network.inputs)
    neurons = first_layer_neurons(network.layers[0], numbers, network.inputs, box)
    if not neurons.constant.any():
        return False
    return scores_agree(product_network(product.first, product.second, box=box, alike=True))


def _identity(writer: ClaimWriter) -> str:
    """Write that the normal forms are equal, as a checker sees it."""
    if writer.first.content_hash == writer.second.content_hash:
        return writer.write("normal forms")
    # The files state differently what has no effect, such as sign(0) where no sum is 0.
    if scores_agree(product_network(writer.first, writer.second, alike=True)):
        return writer.write("neurons")
    raise CertificateError("no certificate: the normal forms are stated differently")


def _at_inputs(
    findings: Findings,
    product: Product,
    rows: FloatArray,
    deadline: Deadline,
    progress: Progress | None,
) -> None:
    """Compare the exact classes of the given inputs."""
    first, second = findings.first, findings.second
    found = compare_inputs(first, second, rows, deadline, progress)
    findings.update(inputs=found)
    if found.undetermined.size:
        findings.note(
            f"the class of {found.undetermined.size} inputs is not determined (the first is "
            f"input {int(found.undetermined[0])})"
        )
    if found.differing.size:
        row = rows[int(found.differing[0])]
        point = Box(row, row)
        difference = difference_at(first, second, point, row)
        assert difference is not None
        findings.different(difference, product, point)
    elif found.count < rows.shape[0]:
        findings.update(status="timeout")
        findings.note(f"{found.count} of {rows.shape[0]} inputs were evaluated in time")
    elif not found.undetermined.size:
        findings.update(status="equal", how="inputs")
        if findings.writer is not None:
            findings.note("no certificate: all inputs were evaluated exactly")
