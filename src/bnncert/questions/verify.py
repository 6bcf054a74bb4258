"""The public API: `verify` decides a property, `bound` bounds its margin."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bnncert.engine.methods import Options, Progress
from bnncert.engine.verdict import Result
from bnncert.errors import InputError, OutsideDataBoxWarning
from bnncert.model.description import SignZero
from bnncert.model.network import Network
from bnncert.problem import Problem, Rivals, Ties, from_vnnlib, robustness
from bnncert.problem.problem import Arithmetic, float32_network
from bnncert.problem.vnnlib.query import Specification
from bnncert.questions.prover import Announce, Effort, Prover
from bnncert.regions import Cover, ImageUnion, InputSet


def verify(
    network: Network | Mapping[str, Network],
    region: InputSet | Specification,
    label: int | None = None,
    *,
    rivals: Rivals = "all",
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    arithmetic: Arithmetic = "real",
    method: str = "auto",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
    announce: Announce | None = None,
    strict: bool = True,
) -> Result:
    """Decide whether every point of a region is classified as `label`, or a VNN-LIB query.

    Parameters
    ----------
    network
        The network, from :func:`load`, :func:`from_torch` or :meth:`Network.from_arrays`; for a
        query that declares several networks, each of them by its name there.
    region
        The inputs that count: a :class:`Ball`, :class:`L0Ball`, :class:`Box` or :class:`Polytope`,
        or a shape of change: :class:`Brightness`, :class:`BrightnessSteps`, :class:`Contrast`,
        :class:`Patch` or :class:`ImageShift`.  Or a query from :func:`read_vnnlib`, which states
        the violation: "robust" is unsat and "not_robust" sat, see `vnncomp_word` of the result.
    label
        The class that all of them should have; a query has no label, rivals or ties.
    rivals
        "all" rivals, the "runner-up" only (the one with the highest score at the
        centre of the region, as in the paper), a class, or several classes.
    ties
        Whether an equal score of a rival is a "violation" or "robust".  With "robust"
        only strict counterexamples count, at which a rival scores more.
    sign_zero
        Replaces the sign(0) of the model: "plus", "minus" or "either".
    arithmetic
        "real" or "float32"; with "float32" the verdict holds for every float32 execution.
    method
        A name from ``bnncert methods``.
    timeout
        Seconds for the whole question; None sets no limit.
    options
        Settings of the method.
    progress
        Called with a text, the number of steps done and the number of all steps (0: unknown).
    certificate
        The file for a certificate of the verdict, which ``bnncert check`` accepts.
    announce
        Called with the answer before the certificate is written, which takes time and can fail.
    strict
        Whether a tie is followed by a search for a strict counterexample, in a quarter of the
        remaining time, or as long as the tie took if that is shorter (at least a second).

    Returns
    -------
    Result
        The status ("robust", "not_robust", "unknown" or "timeout"), the bounds for each target, and
        the counterexample if there is one.  It is printed as a table.

    Raises
    ------
    InputError
        If an argument cannot be used: a label or target that the network does not have, a region of
        another size, an unknown method, an option outside its range, or a certificate that
        would replace the network's file or is about a query with several input regions.
    MissingExtraError
        If the method needs a package that is not installed.
    Interrupted
        On Ctrl-C; its `answer` is what was known by then.

    Warns
    -----
    OutsideDataBoxWarning
        If the centre of a ball lies outside the data box of the network.

    Examples
    --------
    Two neurons, sign(a + b) and sign(a - b), and the classes "both are +1" and "both are -1":

    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> result = bnncert.verify(net, bnncert.Ball("linf", [0.5, 0], 0.2), label=0, timeout=60)
    >>> result.status, result.lower
    ('robust', 4.0)
    >>> result = bnncert.verify(net, bnncert.Ball("linf", [0.5, 0], 0.3), label=0, timeout=60)
    >>> result.status, result.counterexample.scores.tolist()
    ('not_robust', [0.0, 0.0])

    Is there an input in the unit square at which score 1 is at least 1?

    >>> from bnncert.problem.vnnlib import parse_vnnlib
    >>> query = parse_vnnlib('''
    ... (declare-const X_0 Real) (declare-const X_1 Real)
    ... (declare-const Y_0 Real) (declare-const Y_1 Real)
    ... (assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= X_1 0)) (assert (<= X_1 1))
    ... (assert (>= Y_1 1))''')
    >>> bnncert.verify(net, query, timeout=60).vnncomp_word
    'unsat'
    """
    if arithmetic not in ("real", "float32"):
        raise InputError(f"arithmetic is {arithmetic!r}; expected real or float32")
    effort = Effort(method, timeout, options, progress, certificate, sign_zero)
    if isinstance(network, Mapping):
        return _several(network, region, label, Prover(effort, [], arithmetic), announce)
    network = network.with_sign_zero(sign_zero)
    if isinstance(region, ImageUnion):
        from bnncert.questions.union_search import UnionQuestion, UnionSearch

        question = UnionQuestion(network, region, _needed(label), rivals, ties, arithmetic)
        return UnionSearch(question, effort, strict=strict).outcome(announce)
    prover = Prover(effort, [network], arithmetic)
    if isinstance(region, Specification):
        problems = _of_query(network, region, arithmetic, label, certificate is not None)
        return prover.decide(problems, whole=True, stated=network, query=region, announce=announce)
    warn_outside(network, region)
    executed = _executed(network, region, arithmetic)
    problem = robustness(executed, region, _needed(label), rivals, ties)
    return prover.decide(problem, whole=True, stated=network, strict=strict, announce=announce)


def bound(
    network: Network,
    region: InputSet,
    label: int,
    *,
    rivals: Rivals = "all",
    sign_zero: SignZero | None = None,
    method: str = "sdp",
    timeout: float | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Result:
    """Return lower and upper bounds of the margin over each target, by one method.

    Parameters
    ----------
    network, region, label, rivals, sign_zero, timeout, options, progress
        Those of :func:`verify`.
    method
        A method that promises a bound, see ``bnncert methods``.

    Returns
    -------
    Result
        The bounds; `lower` and `upper` of the result are the smallest over all rivals.

    Raises
    ------
    InputError, MissingExtraError, Interrupted
        As :func:`verify`.

    Examples
    --------
    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> bnncert.bound(net, bnncert.Ball("l2", [0.5, 0], 0.1), label=0, method="interval").lower
    4.0
    """
    network = network.with_sign_zero(sign_zero)
    if isinstance(region, ImageUnion):
        raise InputError(f"bound takes one region, not {region.norm}: use verify")
    warn_outside(network, region)
    options = replace(options or Options(), mode="optimum")
    prover = Prover(Effort(method, timeout, options, progress), [network])
    return prover.decide(robustness(network, region, label, rivals), check_centre=False)


#: The distance of a centre outside the data box that may be due to rounding, relative to the box.
ROUNDING = 1e-6


def warn_outside(network: Network, region: InputSet) -> None:
    """Warn if the centre of a ball lies outside the data box, most often due to a wrong scale."""
    lo, hi = network.input_lo, network.input_hi
    is_ball = region.norm in ("linf", "l2", "l1")
    if not is_ball or lo is None or hi is None or lo.size != region.size:
        return
    room = ROUNDING * (hi - lo)
    outside = np.flatnonzero((region.middle < lo - room) | (region.middle > hi + room))
    if outside.size:
        i = int(outside[0])
        warnings.warn(
            f"the ball's centre lies outside the network's data box: {outside.size} of "
            f"{region.size} inputs, the first is input {i} = {region.middle[i]:.9g} with the box "
            f"[{lo[i]:.9g}, {hi[i]:.9g}]; are the inputs scaled as the network expects?",
            OutsideDataBoxWarning,
            stacklevel=3,
        )


def _needed(label: int | None) -> int:
    if label is None:
        raise InputError("label is missing: the class that all points of the region should have")
    return label


def _of_query(
    network: Network,
    query: Specification,
    arithmetic: Arithmetic,
    label: int | None,
    is_certified: bool,
) -> list[Problem]:
    """Return the problems of a query; raise if it has a label, or no certificate is possible."""
    if label is not None:
        raise InputError(f"label is {label}; a query has no label, it states its property")
    problems = from_vnnlib(network, query)
    if is_certified and len(problems) != 1:
        raise InputError(
            f"{query.path}: a certificate is about one input region, the query has {len(problems)}"
        )
    return [replace(p, network=_executed(network, p.region, arithmetic)) for p in problems]


def _several(
    models: Mapping[str, Network],
    query: InputSet | Specification,
    label: int | None,
    prover: Prover,
    announce: Announce | None,
) -> Result:
    """Decide a query whose networks are given by name."""
    # Imported on use, because products are only needed for several networks.
    from bnncert.questions.several_networks import (
        assigned_networks,
        refuse_wrong_names,
        verify_several,
    )

    if not isinstance(query, Specification):
        raise InputError("networks by name are for a VNN-LIB query that declares them")
    refuse_wrong_names(query, list(models))
    zero = prover.effort.sign_zero
    named = {name: network.with_sign_zero(zero) for name, network in models.items()}
    if len(query.networks) < 2:
        (network,) = named.values()
        is_certified = prover.effort.certificate is not None
        problems = _of_query(network, query, prover.arithmetic, label, is_certified)
        return prover.decide(problems, whole=True, stated=network, query=query, announce=announce)
    if label is not None or prover.effort.certificate is not None:
        what = "label" if label is not None else "certificate"
        raise InputError(f"{query.path}: a query about several networks has no {what}")
    result = verify_several(prover, assigned_networks(query, named), query)
    if announce is not None:
        announce(result)
    return result


def _executed(network: Network, region: InputSet, arithmetic: Arithmetic) -> Network:
    """Widen the thresholds for float32 executions, which a path of images does not have."""
    if arithmetic == "float32" and isinstance(region, Cover):
        raise InputError(
            f"arithmetic float32 is not for {region.norm}: the images of the path are real numbers"
        )
    return network if arithmetic == "real" else float32_network(network, region)
