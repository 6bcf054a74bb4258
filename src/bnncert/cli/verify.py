"""`bnncert verify`: whether a property holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from bnncert.cli.batches import show_notes
from bnncert.cli.bundled_names import POINTS
from bnncert.cli.cluster_options import with_cluster
from bnncert.cli.command_question import (
    CommandQuestion,
    is_input,
    read_network,
    read_points,
    with_argument,
)
from bnncert.cli.completion import among
from bnncert.cli.consoles import Consoles
from bnncert.cli.grouping import grouped
from bnncert.cli.image_folders import (
    FolderView,
    refuse_overwriting,
    refuse_single_files,
    verify_folder,
)
from bnncert.cli.options import (
    ArithmeticOption,
    BallOptions,
    CertificateOption,
    ExplainOption,
    JsonOption,
    MethodOption,
    MethodOptions,
    ModelArgument,
    PrintOptions,
    SaveCounterexampleOption,
    ScalingOptions,
    SchedulerOption,
    TiesOption,
)
from bnncert.cli.output import json_path, refuse_unwritable, write_json
from bnncert.cli.progress import watch
from bnncert.cli.result_views import explain_result, partial_result, result_tree, show_result
from bnncert.cli.time_limit import finite_limit, limit_text, remaining
from bnncert.cli.undecided import Asked
from bnncert.cli.unused import refuse_beside_query, refuse_unread
from bnncert.engine.verdict import Result
from bnncert.extras.vnncomp.executed import as_executed
from bnncert.model.formats.atomic import write_atomically
from bnncert.model.network import Network
from bnncert.problem import Ties
from bnncert.problem.float32 import Arithmetic
from bnncert.problem.vnnlib import read_vnnlib
from bnncert.problem.vnnlib.query import Specification
from bnncert.questions.verify import verify as verify_api
from bnncert.report.picture import CounterexampleFile
from bnncert.report.vnncomp_files import vnncomp_result
from bnncert.results.instance import Settings
from bnncert.results.runner import Place


@dataclass(frozen=True)
class VerifyOutputs:
    """The files that `verify` writes."""

    certificate: CertificateOption = None
    witness: Annotated[
        Path | None, typer.Option("--witness", help="Write the answer in VNN-COMP's result format.")
    ] = None
    save_counterexample: SaveCounterexampleOption = None
    json_: JsonOption = None

    @property
    def files(self) -> tuple[Path | None, ...]:
        """The files that are named."""
        return self.witness, self.certificate, self.save_counterexample, json_path(self.json_)


@grouped
def verify(
    *,
    ctx: typer.Context,
    model: ModelArgument,
    spec: Annotated[
        str | None,
        typer.Argument(
            help="VNN-LIB query: .vnnlib or .vnnlib.gz; or a point or image folder, as --input.",
            autocompletion=among(POINTS, files=True),
        ),
    ] = None,
    ball: BallOptions,
    scaling: ScalingOptions,
    ties: TiesOption = "violation",
    method: MethodOption = "auto",
    settings: MethodOptions,
    arithmetic: ArithmeticOption = "real",
    cluster: SchedulerOption = None,
    explain: ExplainOption = False,
    outputs: VerifyOutputs,
    printing: PrintOptions,
) -> None:
    """Decide whether a property holds, with a counterexample if it does not."""
    refuse_unread(ctx, method)
    consoles = Consoles.of(ctx, printing, stderr=outputs.json_ == "-")
    ball, spec = _point_or_query(ctx, ball, spec)
    options = settings.options()
    refuse_unwritable(*outputs.files, read=(model, spec, ball.input_, ball.labels))
    network = read_network(model, settings.sign_zero)
    limit = limit_text(ctx, settings.timeout)
    keywords: dict[str, Any] = {"sign_zero": settings.sign_zero, "arithmetic": arithmetic}
    ask: Callable[..., Result]
    question, opening = None, None
    if spec is not None:
        # The only line of a query is its answer.
        query = read_vnnlib(Path(spec))
        ask, about = partial(verify_api, network, query), {"specification": str(Path(spec))}
    else:
        points = read_points(network, ball, ball.shape, scaling)
        show_notes(points.data.notes, consoles.details)
        if points.is_folder:
            limit = limit_text(ctx, settings.timeout, " for each image")
            view = FolderView(points, consoles, model.name, limit, outputs.json_)
            _verify_folder(view, ties, method, settings, arithmetic, cluster, outputs)
            return
        question = points.question(points.index)
        network = question.network
        ask = partial(verify_api, network, question.region, question.label)
        keywords |= {"targets": question.targets, "ties": ties}
        about = {"input": question.where, "labels": question.labels}
        title = f"{model.name}, {question.title}: {question.label_text}, {question.ball_text}"
        opening = consoles.details.later(f"{title}; {limit}")
    saved = _saved(outputs.save_counterexample, network, question)
    seconds, is_real = finite_limit(settings.timeout), arithmetic == "real"
    asked = Asked(method, options, seconds, question, ties=ties, is_real=is_real)
    with (
        with_cluster(options, cluster, consoles) as options,
        watch(consoles.watching, seconds, opening) as progress,
        partial_result(consoles.details, progress),
    ):

        def announce(found: Result) -> None:
            progress.open()
            with progress.paused():
                _show_answer(consoles, asked, found, explain)

        result = ask(
            **keywords,
            method=method,
            timeout=remaining(settings.timeout),
            options=options,
            progress=progress,
            certificate=outputs.certificate,
            announce=announce,
        )
    if outputs.certificate is not None:
        _show_certificate(consoles.details, result)
    if saved is not None:
        consoles.details.print(saved.write(result.counterexample), soft_wrap=True)
    if outputs.witness is not None:
        shown = result if question is not None else _replayable(network, query, result)
        write_atomically(outputs.witness, vnncomp_result(shown))
    if outputs.json_ is not None:
        # The tree has the hash of the network, which takes long for a large one.
        extra = {**about, "seed": settings.seed, "arithmetic": arithmetic}
        region = None if question is None else question.region
        write_json(outputs.json_, result_tree(network, result, region, extra))


def _point_or_query(
    ctx: typer.Context, ball: BallOptions, spec: str | None
) -> tuple[BallOptions, str | None]:
    """Return the ball and the query that are asked about: the second argument may be either."""
    if spec is not None and is_input(spec):
        return with_argument(ball, spec), None
    if spec is not None:
        refuse_beside_query(ctx, spec)
    return ball, spec


def _verify_folder(
    view: FolderView,
    ties: Ties,
    method: str,
    settings: MethodOptions,
    arithmetic: Arithmetic,
    cluster: str | None,
    outputs: VerifyOutputs,
) -> None:
    """Verify all images of a folder."""
    points, consoles = view.points, view.consoles
    single = {
        "--certificate": outputs.certificate,
        "--witness": outputs.witness,
        "--save-counterexample": outputs.save_counterexample,
    }
    refuse_single_files(points, single)
    refuse_overwriting(points, json_path(outputs.json_))
    how = Settings(
        points.balls.norm,
        points.targets,
        ties,
        method,
        finite_limit(settings.timeout),
        settings.seed,
        settings.memory,
        grid=points.grid,
        within=points.within,
        value=points.balls.value,
        arithmetic=arithmetic,
        processes=settings.processes,
    )

    def say(text: str) -> None:
        consoles.watching.print(text, soft_wrap=True)

    verify_folder(view, how, Place(scheduler=cluster, say=say))


def _saved(
    path: Path | None, network: Network, question: CommandQuestion | None
) -> CounterexampleFile | None:
    """Return the file for a counterexample, if one is named."""
    if path is None:
        return None
    if question is None:
        return CounterexampleFile(path, network.input_shape)
    ball = question.region
    return CounterexampleFile.around(
        path, network, ball.middle, ball.clip_lo, ball.clip_hi, question.image_shape
    )


def _replayable(network: Network, query: Specification, result: Result) -> Result:
    """Return the answer for a result file, whose readers compare it with the model's own outputs.

    If the executed model does not confirm the counterexample, the answer is unknown.
    """
    if result.counterexample is None:
        return result
    executed = as_executed(network, query, result)
    return replace(result, status="unknown", counterexample=None) if executed is None else executed


def _show_answer(consoles: Consoles, asked: Asked, found: Result, explain: bool) -> None:
    """Print the word of VNN-COMP for a query, and the table of targets for a ball."""
    if asked.ball is not None:
        show_result(consoles, asked, found, explain=explain)
        return
    consoles.answer.print(found.vnncomp_word)
    # The only line of a query on the standard output is its answer, unless more is asked for.
    about = consoles if explain else replace(consoles, details=consoles.watching)
    explain_result(about, asked, found, explain=explain)


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
