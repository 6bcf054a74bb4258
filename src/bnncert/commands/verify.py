"""`bnncert verify`: whether a property holds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bnncert.atomic import write_atomically
from bnncert.commands.clock import remaining
from bnncert.commands.console import PlainConsole, watch
from bnncert.commands.grouping import grouped
from bnncert.commands.options import (
    ArithmeticOption,
    CertificateOption,
    CouplingOption,
    JsonOption,
    MethodOption,
    MethodOptions,
    ModelArgument,
    PointOptions,
    RadiusOption,
    ScalingOptions,
    TiesOption,
)
from bnncert.commands.output import json_path, refuse_unwritable, write_json
from bnncert.commands.question import read_network, read_question
from bnncert.commands.results import partial_result, result_tree, show_result
from bnncert.commands.unused import refuse_beside_query, refuse_unread
from bnncert.competition.executed import as_executed
from bnncert.formats.vnnlib.query import Specification
from bnncert.formats.vnnlib.reader import read_vnnlib
from bnncert.network import Network
from bnncert.regions import Region
from bnncert.report.witness import vnncomp_result
from bnncert.verdict import Result
from bnncert.verification import verify as verify_api
from bnncert.verification import verify_specification


@grouped
def verify(
    *,
    ctx: typer.Context,
    model: ModelArgument,
    spec: Annotated[
        Path | None, typer.Argument(help="VNN-LIB query: .vnnlib or .vnnlib.gz.")
    ] = None,
    point: PointOptions,
    radius: RadiusOption = None,
    scaling: ScalingOptions,
    ties: TiesOption = "violation",
    method: MethodOption = "auto",
    settings: MethodOptions,
    coupling: CouplingOption = "auto",
    arithmetic: ArithmeticOption = "real",
    certificate: CertificateOption = None,
    witness: Annotated[
        Path | None, typer.Option("--witness", help="Write the answer in VNN-COMP's result format.")
    ] = None,
    json_: JsonOption = None,
) -> None:
    """Decide whether a property holds, with a counterexample if it does not."""
    refuse_unread(ctx, method)
    if spec is not None:
        refuse_beside_query(ctx, str(spec))
    options = settings.options(coupling=coupling)
    read = (model, spec, point.input_, point.labels)
    refuse_unwritable(witness, certificate, json_path(json_), read=read)
    network = read_network(model, settings.sign_zero)
    console = PlainConsole(stderr=json_ == "-")
    region: Region | None = None
    specification: Specification | None = None
    if spec is not None:
        specification = read_vnnlib(spec)
        title = f"{model.name}, {spec.name}"
        extra: dict[str, Any] = {"specification": str(spec)}
        ask = partial(verify_specification, network, specification)
    else:
        question = read_question(network, point, radius, scaling)
        network, region = question.network, question.region
        title = f"{model.name}, {question.title}: {question.label_text}, {region.describe()}"
        extra = {"input": question.where, "labels": question.labels}
        ask = partial(
            verify_api, network, region, question.label, targets=question.targets, ties=ties
        )
    with partial_result(console, title), watch(PlainConsole(stderr=True)) as progress:

        def announce(found: Result) -> None:
            with progress.paused():
                if spec is not None:
                    console.print(found.vnncomp_word)
                else:
                    show_result(console, title, found)

        result = ask(
            method=method,
            timeout=remaining(settings.timeout),
            sign_zero=settings.sign_zero,
            options=options,
            progress=progress,
            arithmetic=arithmetic,
            certificate=certificate,
            announce=announce,
        )
    if certificate is not None:
        _show_certificate(console, result)
    if witness is not None:
        write_atomically(witness, vnncomp_result(_replayable(network, specification, result)))
    extra |= {"seed": settings.seed, "arithmetic": arithmetic}
    if json_ is not None:
        write_json(json_, result_tree(network, result, region, extra))


def _replayable(network: Network, specification: Specification | None, result: Result) -> Result:
    """Return the answer for a result file, whose reader compares it with the model's own outputs.

    If the model as it is executed does not confirm the counterexample, the answer is unknown.
    """
    if specification is None or result.counterexample is None:
        return result
    executed = as_executed(network, specification, result)
    return replace(result, status="unknown", counterexample=None) if executed is None else executed


def _show_certificate(console: Console, result: Result) -> None:
    """Print where the certificate is, or why there is none."""
    if result.certificate is not None:
        size = Path(result.certificate).stat().st_size
        console.print(f"certificate: {result.certificate} ({size} bytes)", soft_wrap=True)
    elif result.trusted is not None:
        console.print(f"note: {result.notes[-1]}", soft_wrap=True)
        console.print(f"not certified: the verdict rests on trust in {result.trusted}")
    else:
        console.print("no certificate: there is no verdict")
