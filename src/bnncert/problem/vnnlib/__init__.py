"""VNN-LIB queries of any version, which state the violation: reading, and turning into problems."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert.errors import InputError
from bnncert.model.formats.file_content import DEFAULT_LIMITS, read_bytes
from bnncert.model.network import Network
from bnncert.model.rationals import float_above, float_below, square_root
from bnncert.problem.objective import score_objective
from bnncert.problem.problem import Problem, Target
from bnncert.problem.vnnlib.query import (
    Disjunct,
    EuclideanBall,
    IntegerFormat,
    LinearConstraint,
    Specification,
    error_at,
)
from bnncert.problem.vnnlib.version1 import TOKEN, parse_version1
from bnncert.regions import Ball, Box, EmptyRegionError, Grid, Polytope, Region


def read_vnnlib(path: str | os.PathLike[str]) -> Specification:
    """Read a VNN-LIB 1.0 or 2.0 file, plain or gzip-compressed.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Specification
        The query, for :func:`bnncert.verify`.

    Raises
    ------
    FormatError
        If the file cannot be read or is not a VNN-LIB query that is supported.
    MissingExtraError
        If the file is VNN-LIB 2.0 and the package that parses it is not installed.

    Examples
    --------
    >>> import os, tempfile, bnncert
    >>> text = "(declare-const X_0 Real) (declare-const Y_0 Real)"
    >>> text += "(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= Y_0 0))"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "query.vnnlib")
    ...     with open(path, "w") as file:
    ...         _ = file.write(text)
    ...     query = bnncert.read_vnnlib(path)
    >>> query.input_count, query.output_count, len(query.disjuncts)
    (1, 1, 1)
    """
    name = os.fspath(path)
    data = read_bytes(path, most=DEFAULT_LIMITS.query, name="query")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{error.object[error.start]:02x}, which is not UTF-8"
        raise error_at(name, line, found, "UTF-8 text") from error
    return parse_vnnlib(text, name)


def parse_vnnlib(text: str, path: str = "<string>") -> Specification:
    """Parse the text of a VNN-LIB 1.0 or 2.0 query; `path` is its name in error messages.

    It raises what :func:`read_vnnlib` raises.
    """
    if _states_version(text):
        # Imported here because it needs an optional package, which version 1.0 does not need.
        from bnncert.problem.vnnlib.version2 import parse_version2

        return parse_version2(text, path)
    return parse_version1(text, path)


def _states_version(text: str) -> bool:
    """Whether the first command is ``vnnlib-version``, which VNN-LIB 1.0 does not have."""
    tokens = (t[0] for t in TOKEN.finditer(text) if t[0][0] not in "\n;")
    return next(tokens, "") == "(" and next(tokens, "") == "vnnlib-version"


# -- problems -----------------------------------------------------------------------------


def from_vnnlib(network: Network, specification: Specification) -> tuple[Problem, ...]:
    """Turn a VNN-LIB query, which states the violation, into one problem for each input region.

    Parameters
    ----------
    network
        The network, with as many inputs and scores as the query declares.
    specification
        The query, from :func:`bnncert.read_vnnlib`.

    Returns
    -------
    tuple of Problem
        The problems; there are none if no input satisfies the query's assertions about inputs.

    Raises
    ------
    InputError
        If the query does not fit the network, or asserts what cannot be represented.

    Examples
    --------
    >>> import bnncert
    >>> from bnncert.problem.vnnlib import from_vnnlib, parse_vnnlib
    >>> net = bnncert.Network.from_arrays([[[1]], [[1], [-1]]], [[0], [0, 0]])
    >>> query = parse_vnnlib('''
    ... (declare-const X_0 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
    ... (assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= Y_1 Y_0))''')
    >>> [problem.region for problem in from_vnnlib(net, query)]
    [Box([-1, 1], 1 of the inputs can change, 1 inputs)]
    """
    where = specification.path
    if len(specification.networks) > 1:
        named = " ".join(
            f"--network {n.name}=FILE" for n in specification.networks if not n.equal_to
        )
        raise InputError(
            f"{where}: declares {len(specification.networks)} networks, which are given by their "
            f"names: bnncert verify {where} {named}"
        )
    counts = specification.input_count, specification.output_count
    refuse_unfit(where, *counts, network, specification)
    integers = specification.number_format
    integers = integers if isinstance(integers, IntegerFormat) else None
    groups: dict[tuple[Any, ...], list[tuple[int, Disjunct]]] = {}
    for number, disjunct in enumerate(specification.disjuncts):
        # Equal boxes are the same objects, so comparing identities is enough.
        box = (id(disjunct.lower), id(disjunct.upper), id(disjunct.ball))
        key = (*box, disjunct.input_constraints)
        groups.setdefault(key, []).append((number, disjunct))
    problems = []
    for members in groups.values():
        try:
            region = _vnnlib_region(members[0][1], integers)
        except EmptyRegionError:
            continue
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        targets = tuple(_vnnlib_target(network, d, n, where) for n, d in members)
        problems.append(Problem(network, region, targets))
    return tuple(problems)


def refuse_unfit(
    where: str, inputs: int, outputs: int, network: Network, specification: Specification
) -> None:
    """Raise if a network does not have the declared inputs and outputs; `where` names it."""
    if inputs != network.inputs:
        raise InputError(f"{where}: declares {inputs} inputs, the network has {network.inputs}")
    if network.output_transform == "argmax":
        raise InputError(f"{where}: the network ends in ArgMax, so its scores cannot be queried")
    if outputs != network.classes:
        raise InputError(f"{where}: declares {outputs} outputs, the network has {network.classes}")
    integers = specification.number_format
    if isinstance(integers, IntegerFormat) and network.kind == "onnx":
        raise InputError(
            f"{where}: declares inputs of type {integers.name}, but those of the ONNX model are "
            "floats; VNN-LIB 2.0 asks for the type of the model"
        )


def _vnnlib_region(disjunct: Disjunct, integers: IntegerFormat | None) -> Region:
    grid = None if integers is None else Grid(1.0)
    lower, upper = disjunct.lower, disjunct.upper
    if integers is not None:
        # The sides of the box are integers, so the values of the grid are integers as well.
        lower = tuple(Fraction(max(math.ceil(v), integers.smallest)) for v in lower)
        upper = tuple(Fraction(min(math.floor(v), integers.largest)) for v in upper)
    # Decimals such as 0.1 are rounded outwards, so that a proof covers the query.
    lo = np.array([float_below(v) for v in lower])
    hi = np.array([float_above(v) for v in upper])
    if disjunct.ball is not None:
        return _vnnlib_ball(disjunct.ball, disjunct, Box(lo, hi))
    if not disjunct.input_constraints:
        return Box(lo, hi, grid)
    matrix = np.zeros((len(disjunct.input_constraints), lo.size))
    right = np.zeros(len(disjunct.input_constraints))
    reach = [
        max(abs(Fraction(a)), abs(Fraction(b)))
        for a, b in zip(lo.tolist(), hi.tolist(), strict=True)
    ]
    for i, constraint in enumerate(disjunct.input_constraints):
        loss = Fraction(0)
        for j, c in constraint.inputs:
            matrix[i, j] = float(c)
            loss += abs(c - Fraction(matrix[i, j])) * reach[j]
        right[i] = float_above(-constraint.constant + loss)
    return Polytope(matrix, right, lo, hi, grid)


def _vnnlib_ball(ball: EuclideanBall, disjunct: Disjunct, box: Box) -> Ball:
    """Enclose the exact ball in its exact box by a ball in a box of floats."""
    # The centre of a region must be in the box. If p is the point of the box nearest to the centre
    # c, |x - c|^2 >= |x - p|^2 + |p - c|^2 on the box: the ball around p with the squared radius
    # r^2 - |p - c|^2 contains the intersection, and it is the same ball if c is in the box.
    nearest = [
        min(max(c, low), high)
        for c, low, high in zip(ball.centre, disjunct.lower, disjunct.upper, strict=True)
    ]
    gap = sum(((p - c) ** 2 for p, c in zip(nearest, ball.centre, strict=True)), Fraction(0))
    if gap > ball.squared_radius:
        raise EmptyRegionError("the region is empty: the ball has no point in the box")
    middle = [float(p) for p in nearest]
    # The radius increases by the distance by which rounding moves the centre.
    moved = sum(((p - Fraction(m)) ** 2 for p, m in zip(nearest, middle, strict=True)), Fraction(0))
    radius = square_root(ball.squared_radius - gap, 64).hi + square_root(moved, 64).hi
    return Ball("l2", middle, float_above(radius), box.lo, box.hi)


def _vnnlib_target(network: Network, disjunct: Disjunct, number: int, where: str) -> Target:
    objectives = []
    for constraint in disjunct.output_constraints:
        weights = {j: c for j, c in constraint.outputs if c}
        if network.output_transform == "softmax":
            refuse_values(constraint, where)
        try:
            objectives.append(
                score_objective(
                    network,
                    weights,
                    constraint.constant,
                    tie_is_fine=constraint.strict,
                    name=f"line {constraint.line}",
                )
            )
        except InputError as error:
            raise InputError(f"{where}:{constraint.line}: {error}") from error
    rival = None
    if len(disjunct.output_constraints) == 1:
        raised = [j for j, c in disjunct.output_constraints[0].outputs if c < 0]
        rival = raised[0] if len(raised) == 1 else None
    return Target(f"disjunct {number}", tuple(objectives), rival)


def refuse_values(constraint: LinearConstraint, where: str) -> None:
    """Raise if a constraint depends on more than the order of scores, which Softmax preserves."""
    coefficients = [c for _, c in constraint.outputs if c]
    if constraint.constant or sum(coefficients) or len(coefficients) > 2:
        raise InputError(
            f"{where}:{constraint.line}: the network ends in Softmax, so a query can only "
            "compare two outputs (Y_i >= Y_j)"
        )
