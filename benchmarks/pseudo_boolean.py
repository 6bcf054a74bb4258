"""Questions about binarised inputs as pseudo-Boolean constraints, for the solver Exact.

A first-layer neuron that reads one input of its own is a Boolean variable; a ball is a budget over
those that differ from the centre.  Every gate is a variable that is reified by its threshold.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import numpy as np

import bnncert

#: A head is reified by: the sum of the terms is at least the bound.
Terms = list[tuple[int, str]]

RUN = """
import json, sys, exact
question, seconds = json.load(sys.stdin)
solver = exact.Exact()
for name in question["variables"]:
    solver.addVariable(name)
for head, terms, bound in question["gates"]:
    solver.addReification(head, True, [tuple(t) for t in terms], bound)
for terms, lower, upper in question["constraints"]:
    solver.addConstraint([tuple(t) for t in terms], lower is not None, lower or 0,
                         upper is not None, upper or 0)
print(solver.runFull(False, seconds))
"""

ANSWERS = {"SAT": "not_robust", "UNSAT": "robust", "INCONSISTENT": "robust"}


def is_installed(interpreter: str = sys.executable) -> bool:
    """Whether an interpreter can import the solver."""
    command = [interpreter, "-c", "import exact"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def encode(network: bnncert.Network, region: bnncert.Region, label: int) -> dict[str, Any]:
    """Return the question whether some point of the ball has another class.

    The first layer must be +1 iff x_i >= d_i, around a centre of zeros, with integers d_i.
    """
    assert isinstance(region, bnncert.Ball | bnncert.L0Ball) and not np.any(region.center)
    first = network.layers[0]
    distance = np.rint(-np.asarray(first.bias)).astype(np.int64)
    if isinstance(region, bnncert.L0Ball):
        costs, budget = np.ones_like(distance), region.changes
        near = distance <= region.hi
    else:
        power = 2 if region.norm == "l2" else 1
        costs, budget = distance**power, math.floor(region.radius**power + 1e-9)
        near = costs <= budget
    below = [f"x{i}" if near[i] else None for i in range(distance.size)]
    constraints: list[tuple[Terms, int | None, int | None]] = []
    if isinstance(region, bnncert.L0Ball) or region.norm != "linf":
        cost = [(int(c), n) for c, n in zip(costs, below, strict=True) if n]
        constraints.append((cost, None, budget))
    gates: list[tuple[str, Terms, int]] = []
    for number, layer in enumerate(network.layers[1:], start=1):
        names = [f"y{number}_{j}" for j in range(layer.size)]
        for row, bound, head in zip(
            layer.weights.toarray().tolist(), layer.plus_from.tolist(), names, strict=True
        ):
            gates.append((head, *_sum(row, below, math.ceil(bound))))
        below = list(names)
    output = network.output.weights
    heads: Terms = []
    for rival in range(network.classes):
        if rival == label:
            continue
        row = output[rival] - output[label]
        bound = math.ceil(network.output.bias[label] - network.output.bias[rival])
        gates.append((f"r{rival}", *_sum(row.tolist(), below, bound)))
        heads.append((1, f"r{rival}"))
    constraints.append((heads, 1, None))
    names = [f"x{i}" for i in np.flatnonzero(near).tolist()]
    return {
        "variables": names + [gate[0] for gate in gates],
        "gates": gates,
        "constraints": constraints,
    }


def _sum(row: list[float], below: list[str | None], bound: int) -> tuple[Terms, int]:
    """Write  row . y >= bound  for signs y over Booleans b with y = 2 b - 1; None is always -1."""
    terms = [(2 * int(w), n) for w, n in zip(row, below, strict=True) if n is not None and w]
    return terms, bound + int(sum(row))


def solve_apart(question: dict[str, Any], seconds: float, interpreter: str = sys.executable) -> str:
    """Solve in a process of its own, which is ended soon after the limit."""
    try:
        done = subprocess.run(
            [interpreter, "-c", RUN],
            input=json.dumps([question, seconds]),
            capture_output=True,
            text=True,
            timeout=seconds + 30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    if done.returncode:
        return "error"
    return ANSWERS.get(done.stdout.strip().splitlines()[-1], "timeout")
