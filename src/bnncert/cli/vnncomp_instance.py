"""The commands of the competition's scripts: one instance of VNN-COMP.

The competition measures the start-up: modules that are not needed to start the process of the
instance are imported later.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from bnncert.cli.files import refuse_clashes
from bnncert.cli.time_limit import process_age
from bnncert.errors import BnncertError, InputError
from bnncert.model.formats.atomic import write_atomically

#: Seconds between the answer and the competition's limit, and their share of a small limit.
MARGIN, MARGIN_SHARE = 2.0, 0.05


def vnncomp_instance(
    onnx: Annotated[str, typer.Argument(help="Model, or a list [('f', 'FILE'), ...] of models.")],
    vnnlib: Annotated[Path, typer.Argument(help="Query.")],
    result: Annotated[Path, typer.Argument(help="Where to write the result.")],
    timeout: Annotated[float, typer.Argument(help="Seconds of wall time for everything.")],
    started: Annotated[
        float | None, typer.Argument(help="Unix time from which the limit counts.")
    ] = None,
) -> None:
    """Answer one instance as vnncomp/run_instance.sh has to."""
    from bnncert.extras.vnncomp.scripted_answer import named_models, plain_or_packed, run_instance

    used = process_age() if started is None else max(0.0, time.time() - started)
    begin = time.monotonic() - used
    query = plain_or_packed(vnnlib)
    # Models of a list are relative to the benchmark, in which the queries have a folder.
    models = named_models(onnx, query.parent.parent)
    refuse_clashes((result,), (*(file for _, file in models), query))
    # From now on there is always a valid result file.
    write_atomically(result, "unknown\n")
    if not 0 < timeout < math.inf:
        raise InputError(f"timeout is {timeout}; expected a number of seconds > 0")
    margin = min(MARGIN, MARGIN_SHARE * timeout)
    answer = run_instance(models, query, timeout - margin, started=begin, grace=margin / 4)
    write_atomically(result, answer.file_text)
    if answer.word == "error":
        raise BnncertError(answer.reason)
    print(answer.word)


def vnncomp_prepare(
    onnx: Annotated[str, typer.Argument(help="Model, or a list [('f', 'FILE'), ...] of models.")],
    vnnlib: Annotated[Path, typer.Argument(help="Query.")],
) -> None:
    """Find out whether one instance can be answered, as vnncomp/prepare_instance.sh has to."""
    from bnncert.extras.vnncomp.executed import prepare
    from bnncert.extras.vnncomp.scripted_answer import named_models, plain_or_packed

    query = plain_or_packed(vnnlib)
    models = [(name, str(file)) for name, file in named_models(onnx, query.parent.parent)]
    prepare(query, models)
