"""The work of one instance of VNN-COMP: load, verify, and execute the witness.

Witness points have the format that VNN-COMP's checker replays.  If possible, they are strictly
inside the bounds and away from ties.  Their outputs are those that the model file computes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.engine.methods import Options
from bnncert.engine.replay import OnnxRuntime, Replayer
from bnncert.engine.verdict import Counterexample, Result
from bnncert.errors import InputError
from bnncert.model.formats.atomic import file_identity
from bnncert.model.layers import ThresholdLayer
from bnncert.model.loading import load
from bnncert.model.network import Network
from bnncert.problem import from_vnnlib
from bnncert.problem.vnnlib import read_vnnlib
from bnncert.problem.vnnlib.query import Specification
from bnncert.questions.prover import LEAST_SECONDS
from bnncert.questions.several_networks import (
    assigned_networks,
    executed_outputs,
    refuse_unsupported,
    refuse_wrong_names,
)
from bnncert.questions.verify import verify
from bnncert.regions import Region

#: The distance of a coordinate from its bounds, as a share of the width of its range.
STEPS = (2.0**-7, 2.0**-13)

#: The least |w.x + b| of the first layer at a witness, if possible.
LEAST_SUM = 1e-4

#: Twice the unit roundoff of float32.
FLOAT32_ROUNDOFF = 2.0**-23

#: A lower bound of the sum of squares, for rows without weights.
TINY = 1e-300

#: The largest number of corrections of the sums.
CORRECTIONS = 30


def as_executed(
    networks: Sequence[Network], specification: Specification, result: Result
) -> Result | None:
    """Return the result with the outputs of the model files themselves, including softmax.

    The competition runs the models on the witness and expects these numbers.  None if they do not
    satisfy the query: float32 rounding may change the class at an exact counterexample.
    """
    found = result.counterexample
    assert found is not None
    is_run = "onnxruntime" in found.replayed_in
    runtimes = [OnnxRuntime.of(network) if is_run else None for network in networks]
    if len(networks) == 1:
        found = _settled(networks[0], specification, found, runtimes[0])
    ends = np.cumsum([network.inputs for network in networks])
    outputs = executed_outputs(runtimes, np.split(found.point, ends[:-1]))
    if outputs is None:
        classes = np.cumsum([network.classes for network in networks])
        parts = zip(networks, np.split(found.scores, classes[:-1]), strict=True)
        scores = [_softmax(s) if n.output_transform == "softmax" else s for n, s in parts]
        return replace(result, counterexample=replace(found, scores=np.concatenate(scores)))
    if not np.all(np.isfinite(outputs)) or not specification.holds(
        [Fraction(v) for v in found.point.tolist()], [Fraction(v) for v in outputs.tolist()]
    ):
        return None
    return replace(result, counterexample=replace(found, scores=outputs))


def _settled(
    network: Network,
    specification: Specification,
    found: Counterexample,
    runtime: OnnxRuntime | None,
) -> Counterexample:
    """Return a counterexample strictly between all bounds that differ, away from ties.

    Attacks end in corners, and on pixel grids many sums are exactly 0.  With other rounding, the
    witness may be outside the region or have other signs.  If no better point is confirmed, this is
    the counterexample that was found.
    """
    for problem in from_vnnlib(network, specification):
        region = problem.region
        if not region.contains(found.point):
            continue
        target = next(t for t in problem.targets if t.name == found.target)
        replayer = Replayer(problem, runtime, specification.holds)
        wide = region.hi > region.lo
        for candidate in _candidates(network, region, found.point):
            moved = replayer.confirm(target, candidate)
            if moved is not None and np.all(
                ~wide | ((moved.point > region.lo) & (moved.point < region.hi))
            ):
                return moved
    return found


def _candidates(network: Network, region: Region, point: FloatArray) -> Iterator[FloatArray]:
    """Yield points near a counterexample, the best first."""
    margins = [step * (region.hi - region.lo) for step in STEPS]
    if region.is_box:
        for margin in margins:
            cleared = away_from_ties(
                network.layers[0], point, region.lo + margin, region.hi - margin
            )
            if cleared is not None:
                yield cleared
    for margin in margins:
        yield np.clip(point, region.lo + margin, region.hi - margin)


def away_from_ties(
    layer: ThresholdLayer, point: FloatArray, lo: FloatArray, hi: FloatArray
) -> FloatArray | None:
    """Return a point of a box where each neuron of the first layer has the sign s of `point`.

    Every sum satisfies s (w.x + b) >= m with m = 1e-4, or the float32 rounding error if it is
    larger.  All sums that are too small are corrected at once, each along its row.  None if this
    does not end after CORRECTIONS steps, or a sign is not determined.
    """
    signs = layer.exact_signs(point).astype(np.float64)
    if np.any(np.abs(signs) != 1):
        return None
    operator = layer.operator(np.float64)
    rounding = FLOAT32_ROUNDOFF * layer.norm * np.abs(point).max(initial=0.0)
    least = np.maximum(LEAST_SUM, rounding)
    x = np.clip(point, lo, hi)
    for _ in range(CORRECTIONS):
        short = least - signs * (operator.forward(x[None, :])[0] + layer.bias)
        rows = np.flatnonzero(short > 0)
        if not rows.size:
            return x
        weights = layer.weights[rows].astype(np.float64)
        squares = np.asarray(weights.multiply(weights).sum(axis=1)).reshape(-1)
        change = signs[rows] * (short + least)[rows] / np.maximum(squares, TINY)
        x = np.clip(x + weights.T @ change, lo, hi)
    return None


def _softmax(scores: FloatArray) -> FloatArray:
    shifted = np.exp(scores - scores.max())
    return np.asarray(shifted / shifted.sum(), dtype=np.float64)


def answer(request: dict[str, Any]) -> tuple[Result | None, Specification | None, str, str]:
    """Return the result of a request of `run_instance`, its query, a reason, and the stage."""
    specification = read_vnnlib(request["query"])
    models = _loaded(specification, request["models"])
    networks = assigned_networks(specification, models)
    certificate = request["certificate"]
    reason = ""
    if certificate is not None:
        is_one = len(networks) == 1 and len(from_vnnlib(networks[0], specification)) == 1
        if not is_one:
            what = "input regions" if len(networks) == 1 else "networks"
            certificate, reason = None, f"no certificate: the query has several {what}"
    # Loaded objects stay until the end, so garbage collection ignores them.
    gc.freeze()
    gc.enable()
    method = request["method"]
    if request["end"] <= time.monotonic():
        return Result("timeout", (), 0.0, method), None, "loading took all the time", ""
    options = Options(processes=0, memory=request["memory"])

    def asked(**how: Any) -> Result:
        left = max(request["end"] - time.monotonic(), LEAST_SECONDS)
        how = {"method": method, "timeout": left, "options": options, **how}
        return verify(models, specification, **how)

    result = asked(certificate=certificate)
    if result.trusted is not None:
        reason = f"not certified: rests on trust in {result.trusted}"
    if result.status == "robust" and _is_about_floats(specification):
        # onnxruntime decides about the witnesses of others, and a wrong answer costs the most.
        executed = asked(arithmetic="float32")
        if executed.status != "robust":
            undecided = replace(result, status=executed.status, certificate=None)
            reason = "proved for real numbers, but not for every float32 execution"
            return replace(undecided, counterexample=None), None, reason, ""
    if result.counterexample is not None:
        confirmed = as_executed(networks, specification, result)
        if confirmed is None:
            undecided = replace(result, status="unknown", counterexample=None)
            return undecided, None, "the counterexample is lost by rounding in onnxruntime", ""
        result = confirmed
    return result, specification, reason, result.deciding_stage


def _is_about_floats(query: Specification) -> bool:
    """Whether the answer is about executions; type `real` of VNN-LIB 2.0 asks for real numbers."""
    return not any(network.input.element_type == "real" for network in query.networks)


def _loaded(query: Specification, models: Sequence[Sequence[str]]) -> dict[str, Network]:
    """Load the models by the names of their networks.

    A list of instances also names the model of a network that is equal to another one.
    """
    files = {name: Path(path) for name, path in models}
    needed = [n for n in query.networks if n.equal_to is None]
    if list(files) == [""]:
        name = needed[0].name if needed else "f"
        files = {name: files[""]}
    for network in query.networks:
        same = files.get(network.equal_to or "")
        if same is not None and network.name in files:
            if file_identity(files[network.name]) != file_identity(same):
                raise InputError(
                    f"{query.path}: network {network.name} is declared equal to "
                    f"{network.equal_to}, but has the model {files[network.name]} and not {same}"
                )
            del files[network.name]
    refuse_wrong_names(query, list(files))
    return {name: load(path) for name, path in files.items()}


def prepare(query: Path, models: Sequence[Sequence[str]]) -> None:
    """Raise if an instance cannot be answered."""
    specification = read_vnnlib(query)
    networks = assigned_networks(specification, _loaded(specification, models))
    if len(networks) == 1:
        from_vnnlib(networks[0], specification)
    else:
        refuse_unsupported(networks, specification)
