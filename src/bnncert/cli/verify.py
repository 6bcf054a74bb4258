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
from bnncert.cli.consoles import Talk
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
    SaveCounterexampleOption,
    ScalingOptions,
    SchedulerOption,
    TalkOptions,
    TiesOption,
)
from bnncert.cli.output import json_path, refuse_unwritable, write_json
from bnncert.cli.progress import LiveLine, watch
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
from bnncert.regions import InputSet
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


@dataclass(frozen=True, eq=False)
class _Asked:
    """The question: `ask` verifies it, `title` and `extra` describe it; a query has no region."""

    network: Network
    title: str
    extra: dict[str, Any]
    ask: Callable[..., Result]
    question: CommandQuestion | None = None
    specification: Specification | None = None
    image_shape: tuple[int, ...] = ()

    @property
    def region(self) -> InputSet | None:
        """The ball; None for a query."""
        return None if self.question is None else self.question.region


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
    talking: TalkOptions,
) -> None:
    """Decide whether a property holds, with a counterexample if it does not."""
    refuse_unread(ctx, method)
    talk = Talk.of(ctx, talking, stderr=outputs.json_ == "-")
    ball, spec = _point_or_query(ctx, ball, spec)
    options = settings.options()
    refuse_unwritable(*outputs.files, read=(model, spec, ball.input_, ball.labels))
    network = read_network(model, settings.sign_zero)
    if spec is not None:
        asked = _query(network, model, Path(spec))
    else:
        points = read_points(network, ball, ball.shape, scaling)
        show_notes(points.data.notes, talk.details)
        if points.is_folder:
            limit = limit_text(ctx, settings.timeout, " for each image")
            view = FolderView(points, talk, model.name, limit, outputs.json_)
            _verify_folder(view, ties, method, settings, arithmetic, cluster, outputs)
            return
        asked = _ball(model, points.question(points.index), ties)
    saved = _saved(outputs.save_counterexample, asked)
    title = f"{asked.title}; {limit_text(ctx, settings.timeout)}"
    # The only line of a query is its answer.
    opening = talk.details.later(title) if asked.specification is None else None
    seconds, is_real = finite_limit(settings.timeout), arithmetic == "real"
    how = Asked(method, options, seconds, asked.question, ties=ties, is_real=is_real)
    with (
        with_cluster(options, cluster, talk) as options,
        watch(talk.watching, how.timeout, opening) as progress,
        partial_result(talk.details, progress),
    ):
        result = asked.ask(
            **_ways(method, settings, arithmetic),
            timeout=remaining(settings.timeout),
            options=options,
            progress=progress,
            certificate=outputs.certificate,
            announce=_announcing(talk, how, asked, progress, explain),
        )
    _write_files(talk.details, asked, result, outputs, saved)
    if outputs.json_ is not None:
        # The tree has the hash of the network, which takes long for a large one.
        extra = {**asked.extra, "seed": settings.seed, "arithmetic": arithmetic}
        write_json(outputs.json_, result_tree(asked.network, result, asked.region, extra))


def _point_or_query(
    ctx: typer.Context, ball: BallOptions, spec: str | None
) -> tuple[BallOptions, str | None]:
    """Return the ball and the query that are asked about: the second argument may be either."""
    if spec is not None and is_input(spec):
        return with_argument(ball, spec), None
    if spec is not None:
        refuse_beside_query(ctx, spec)
    return ball, spec


def _ways(method: str, settings: MethodOptions, arithmetic: Arithmetic) -> dict[str, Any]:
    """Return the keywords of `verify` about how a question is answered."""
    return {"method": method, "sign_zero": settings.sign_zero, "arithmetic": arithmetic}


def _announcing(
    talk: Talk, how: Asked, asked: _Asked, progress: LiveLine, explain: bool
) -> Callable[[Result], None]:
    """Return what prints an answer before its certificate is written."""

    def announce(found: Result) -> None:
        progress.open()
        with progress.paused():
            _show_answer(talk, how, asked, found, explain)

    return announce


def _write_files(
    console: Console,
    asked: _Asked,
    result: Result,
    outputs: VerifyOutputs,
    saved: CounterexampleFile | None,
) -> None:
    """Write the counterexample and the answer, and print where all files are."""
    if outputs.certificate is not None:
        _show_certificate(console, result)
    if saved is not None:
        console.print(saved.write(result.counterexample), soft_wrap=True)
    if outputs.witness is not None:
        write_atomically(outputs.witness, vnncomp_result(_replayable(asked, result)))


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
    points, talk = view.points, view.talk
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
        talk.watching.print(text, soft_wrap=True)

    verify_folder(view, how, Place(scheduler=cluster, say=say))


def _query(network: Network, model: Path, spec: Path) -> _Asked:
    specification = read_vnnlib(spec)
    return _Asked(
        network,
        f"{model.name}, {spec.name}",
        {"specification": str(spec)},
        partial(verify_api, network, specification),
        specification=specification,
    )


def _ball(model: Path, question: CommandQuestion, ties: Ties) -> _Asked:
    network, region = question.network, question.region
    return _Asked(
        network,
        f"{model.name}, {question.title}: {question.label_text}, {question.ball_text}",
        {"input": question.where, "labels": question.labels},
        partial(verify_api, network, region, question.label, targets=question.targets, ties=ties),
        question,
        image_shape=question.image_shape,
    )


def _saved(path: Path | None, asked: _Asked) -> CounterexampleFile | None:
    """Return the file for a counterexample, if one is named."""
    if path is None:
        return None
    network, ball = asked.network, asked.region
    if ball is None or ball.norm is None:
        return CounterexampleFile(path, network.input_shape)
    return CounterexampleFile.around(
        path, network, ball.middle, ball.clip_lo, ball.clip_hi, asked.image_shape
    )


def _replayable(asked: _Asked, result: Result) -> Result:
    """Return the answer for a result file, whose readers compare it with the model's own outputs.

    If the executed model does not confirm the counterexample, the answer is unknown.
    """
    if asked.specification is None or result.counterexample is None:
        return result
    executed = as_executed(asked.network, asked.specification, result)
    return replace(result, status="unknown", counterexample=None) if executed is None else executed


def _show_answer(talk: Talk, how: Asked, asked: _Asked, found: Result, explain: bool) -> None:
    """Print the word of VNN-COMP for a query, and the table of targets for a ball."""
    if asked.specification is None:
        show_result(talk, how, found, explain=explain)
        return
    talk.answer.print(found.vnncomp_word)
    # The only line of a query on the standard output is its answer, unless more is asked for.
    about = talk if explain else replace(talk, details=talk.watching)
    explain_result(about, how, found, explain=explain)


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
