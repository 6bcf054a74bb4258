"""The work of one instance: load, verify, and execute the witness."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import Any

from bnncert.engine.methods import Options
from bnncert.engine.verdict import Result
from bnncert.extras.vnncomp.executed import as_executed
from bnncert.model.loading import load
from bnncert.problem import from_vnnlib
from bnncert.problem.vnnlib.query_file import read_vnnlib
from bnncert.questions.verify import verify_specification


def answer(request: dict[str, Any]) -> tuple[Result | None, str, str]:
    """Return the result of a request of `run_instance`, a reason, and the stage that decided."""
    network = load(request["model"])
    specification = read_vnnlib(request["query"])
    certificate = request["certificate"]
    reason = ""
    if certificate is not None and len(from_vnnlib(network, specification)) != 1:
        certificate, reason = None, "no certificate: the query has several input regions"
    # Loaded objects stay until the end, so garbage collection ignores them.
    gc.freeze()
    gc.enable()
    left = request["end"] - time.monotonic()
    if left <= 0:
        method = request["method"]
        return Result("timeout", (), 0.0, method), "loading took all the time", ""
    result = verify_specification(
        network,
        specification,
        method=request["method"],
        timeout=left,
        options=Options(processes=0, memory=request["memory"]),
        certificate=certificate,
    )
    if result.trusted is not None:
        reason = f"not certified: rests on trust in {result.trusted}"
    if result.counterexample is not None:
        executed = as_executed(network, specification, result)
        if executed is None:
            undecided = replace(result, status="unknown", counterexample=None)
            return undecided, "the counterexample is lost by rounding in onnxruntime", ""
        result = executed
    return result, reason, result.deciding_stage
