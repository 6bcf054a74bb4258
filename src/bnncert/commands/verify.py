"""`bnncert verify`: whether a property holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bnncert.atomic import write_atomically
from bnncert.commands.clock import remaining
from bnncert.commands.console import PlainConsole, watch
from bnncert.commands.options import (
    ArithmeticOption,
    CertificateOption,
    ClipOption,
    CouplingOption,
    FormOption,
    IndexOption,
    InputOption,
    JsonOption,
    LabelOption,
    LabelsOption,
    MeanOption,
    MemoryOption,
    MethodOption,
    ModelArgument,
    NormOption,
    PixelOption,
    RadiusOption,
    RestartsOption,
    SamplesOption,
    ScaleOption,
    SeedOption,
    SignZeroOption,
    StdOption,
    TargetsOption,
    TiesOption,
    TimeoutOption,
    read_scale,
    solver_options,
)
from bnncert.commands.output import (
    json_path,
    partial_result,
    refuse_unwritable,
    result_tree,
    show_result,
    write_json,
)
from bnncert.commands.question import read_network, read_question
from bnncert.commands.unused import refuse_beside_query, refuse_unread
from bnncert.competition.executed import as_executed
from bnncert.formats.vnnlib.reader import read_vnnlib
from bnncert.regions import Region
from bnncert.report.witness import vnncomp_result
from bnncert.verdict import Result
from bnncert.verification import verify as verify_api
from bnncert.verification import verify_specification


def verify(
    ctx: typer.Context,
    model: ModelArgument,
    spec: Annotated[
        Path | None, typer.Argument(help="VNN-LIB query: .vnnlib or .vnnlib.gz.")
    ] = None,
    input_: InputOption = None,
    index: IndexOption = None,
    label: LabelOption = None,
    labels: LabelsOption = None,
    norm: NormOption = "linf",
    radius: RadiusOption = None,
    clip: ClipOption = None,
    scale: ScaleOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    targets: TargetsOption = "all",
    ties: TiesOption = "violation",
    method: MethodOption = "auto",
    timeout: TimeoutOption = None,
    seed: SeedOption = 0,
    sign_zero: SignZeroOption = None,
    form: FormOption = "lattice",
    samples: SamplesOption = 10_000,
    restarts: RestartsOption = None,
    pixel_step: PixelOption = None,
    memory: MemoryOption = 4.0,
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
    options = solver_options(seed, form, samples, restarts, pixel_step, memory)
    options = replace(options, coupling=coupling)
    refuse_unwritable(witness, certificate, json_path(json_), read=(model, spec, input_, labels))
    network = read_network(model, sign_zero)
    console = PlainConsole(stderr=json_ == "-")
    region: Region | None = None
    extra: dict[str, Any]
    if spec is not None:
        specification = read_vnnlib(spec)
        title = f"{model.name}, {spec.name}"
        with partial_result(console, title), watch(PlainConsole(stderr=True)) as progress:

            def announce(found: Result) -> None:
                with progress.paused():
                    console.print(found.vnncomp_word)

            result = verify_specification(
                network,
                specification,
                method=method,
                timeout=remaining(timeout),
                sign_zero=sign_zero,
                options=options,
                progress=progress,
                arithmetic=arithmetic,
                certificate=certificate,
                announce=announce,
            )
        stated = result
        if witness is not None and result.counterexample is not None:
            # Whoever replays the file compares it with what the model itself computes.
            executed = as_executed(network, specification, result)
            lost = replace(result, status="unknown", counterexample=None)
            stated = lost if executed is None else executed
        extra = {"specification": str(spec)}
    else:
        question = read_question(
            network,
            input_,
            index,
            label,
            labels,
            norm,
            radius,
            clip,
            targets,
            read_scale(scale, mean, std),
        )
        network = question.network
        region = question.region
        title = f"{model.name}, {question.title}: {question.label_text}, {region.describe()}"
        with partial_result(console, title), watch(PlainConsole(stderr=True)) as progress:

            def announce(found: Result) -> None:
                with progress.paused():
                    show_result(console, title, found)

            result = verify_api(
                network,
                question.region,
                question.label,
                targets=question.targets,
                ties=ties,
                method=method,
                timeout=remaining(timeout),
                sign_zero=sign_zero,
                options=options,
                progress=progress,
                arithmetic=arithmetic,
                certificate=certificate,
                announce=announce,
            )
        stated = result
        extra = {"input": question.where, "labels": question.labels}
    if certificate is not None:
        _show_certificate(console, result)
    if witness is not None:
        write_atomically(witness, vnncomp_result(stated))
    extra |= {"seed": seed, "arithmetic": arithmetic}
    if json_ is not None:
        write_json(json_, result_tree(network, result, region, extra))


def _show_certificate(console: Console, result: Result) -> None:
    """Say where the certificate is, or why there is none."""
    if result.certificate is not None:
        size = Path(result.certificate).stat().st_size
        console.print(f"certificate: {result.certificate} ({size} bytes)", soft_wrap=True)
    elif result.trusted is not None:
        console.print(f"note: {result.notes[-1]}", soft_wrap=True)
        console.print(f"not certified: the verdict rests on trust in {result.trusted}")
    else:
        console.print("no certificate: there is no verdict")
