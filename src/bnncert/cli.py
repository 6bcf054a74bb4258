"""The command line.  Exit codes: 0 a verdict was produced, 2 bad input, 130 interrupted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text
from typer.core import TyperGroup

import bnncert
from bnncert.campaign import Campaign, Settings, finished_rows, plan, read_data, run_campaign
from bnncert.checking import RejectedError, UnreadableError
from bnncert.checking import check as check_certificate
from bnncert.demo import run_demo
from bnncert.errors import BnncertError, FormatError, InputError
from bnncert.formats.inputs import pick_point, read_array
from bnncert.formats.vnnlib import read_vnnlib
from bnncert.methods import Options
from bnncert.methods import Progress as ProgressCallback
from bnncert.network import Network, load
from bnncert.problem import Targets
from bnncert.radius import find_radius
from bnncert.regions import Ball, Norm, Region
from bnncert.relaxations.linear import Form
from bnncert.report.summary import radius_table, summary_table
from bnncert.report.tables import (
    methods_table,
    network_table,
    number,
    presolve_table,
    result_table,
    stage_table,
    status_text,
    weight_values,
)
from bnncert.report.witness import vnncomp_result
from bnncert.results import ResultsFile, Row
from bnncert.verdict import Result
from bnncert.verification import bound as bound_api
from bnncert.verification import verify as verify_api
from bnncert.verification import verify_specification


class _InterruptedError(Exception):
    """Ctrl-C inside a command."""


class _SystemError(Exception):
    """The operating system refused something, most often to take the output."""


class _Commands(TyperGroup):
    """The commands; some errors are renamed, because versions of typer treat them differently."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            outcome = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt as error:
            raise _InterruptedError from error
        except OSError as error:
            raise _SystemError from error
        return outcome


class _Console(Console):
    """A console that prints names from files as they are, whatever they look like."""

    def __init__(self, *, stderr: bool = False, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        """Leave it to :func:`main`, which knows the exit codes."""
        raise BrokenPipeError


app = typer.Typer(
    name="bnncert",
    cls=_Commands,
    help="Verify binary neural networks: robust with a bound, or a counterexample that replays.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ModelArgument = Annotated[
    Path, typer.Argument(help="Network file: .npz, .json or .onnx (also .gz).")
]
InputOption = Annotated[
    str | None, typer.Option("--input", help="Point: .npy, FILE.npz:KEY, or an image file.")
]
IndexOption = Annotated[int | None, typer.Option("--index", help="Which point of a batch.")]
LabelOption = Annotated[
    int | None, typer.Option("--label", help="True class (default: the network's own answer).")
]
NormOption = Annotated[
    Literal["linf", "l2", "l1"], typer.Option("--norm", help="Norm of the ball.")
]
RadiusOption = Annotated[
    float | None, typer.Option("--radius", help="Radius in the network's input units.")
]
ClipOption = Annotated[
    tuple[float, float] | None,
    typer.Option("--clip", help="Data box LO HI (default: the one in the network file)."),
]
TargetsOption = Annotated[str, typer.Option("--targets", help="all, runner-up, or a class.")]
TiesOption = Annotated[
    Literal["violation", "robust"],
    typer.Option("--ties", help="What an equal score of a rival counts as."),
]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", help="Seconds for the whole question.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of all randomness.")]
SignZeroOption = Annotated[
    Literal["plus", "minus", "either"] | None,
    typer.Option("--sign-zero", help="Value of sign(0) (default: as the model says, else plus)."),
]
JsonOption = Annotated[
    str | None, typer.Option("--json", help="Write everything as JSON to FILE, or - for stdout.")
]
FormOption = Annotated[Literal["lattice", "soft"], typer.Option("--form", help="Encoding of milp.")]
SamplesOption = Annotated[int, typer.Option("--samples", help="Points that sample draws.")]
RestartsOption = Annotated[
    int | None, typer.Option("--restarts", help="Points that attack moves at once.")
]
SolverOption = Annotated[
    Literal["structured", "low-rank", "clarabel", "scs", "mosek", "highs", "scip", "gurobi"] | None,
    typer.Option(
        "--solver",
        help="Back end: structured (default) or low-rank for sdp; clarabel (default of the "
        "sdp-* methods), scs and mosek for all of them; highs (milp), scip (minp) or gurobi.",
    ),
]
ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain", help="Show what presolve did, sizes, iterations, gap and time per stage (sdp)."
    ),
]
MemoryOption = Annotated[
    float,
    typer.Option(
        "--memory-limit",
        help="GB that open nodes of branch and bound may take before it goes deepest first.",
    ),
]
SparsityOption = Annotated[
    Literal["layered", "pairwise", "chordal", "dense"] | None,
    typer.Option("--sparsity", help="Cliques of the sdp-* methods (default: the method's own)."),
]
CouplingOption = Annotated[
    Literal["auto", "on", "off"],
    typer.Option("--coupling", help="The input as variables of sdp (auto: to decide a sign)."),
]
CertificateOption = Annotated[
    Path | None,
    typer.Option("--certificate", help="Write a proof of the verdict for `bnncert check`."),
]
ArithmeticOption = Annotated[
    Literal["real", "float32"],
    typer.Option("--arithmetic", help="float32: the verdict covers every float32 execution."),
]
PixelOption = Annotated[
    float | None,
    typer.Option("--pixel-step", help="Spacing of admissible values for attack, e.g. 1."),
]


@dataclass(frozen=True)
class _Question:
    """What the options of verify and bound have in common."""

    network: Network
    region: Region
    label: int
    targets: Targets
    where: str


def _targets(text: str) -> Targets:
    if text == "all":
        return "all"
    if text == "runner-up":
        return "runner-up"
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--targets is {text!r}; expected all, runner-up or a class") from None


def _options(
    seed: int,
    form: Form,
    samples: int,
    restarts: int | None,
    pixel_step: float | None,
    memory: float,
) -> Options:
    if seed < 0:
        raise InputError(f"--seed is {seed}; expected an integer >= 0")
    if samples < 1 or (restarts is not None and restarts < 1):
        raise InputError("--samples and --restarts must be at least 1")
    if pixel_step is not None and not pixel_step > 0:
        raise InputError(f"--pixel-step is {pixel_step}; expected a number > 0")
    if not memory > 0:
        raise InputError(f"--memory-limit is {memory}; expected a number of GB > 0")
    return Options(
        seed=seed,
        form=form,
        samples=samples,
        restarts=restarts,
        pixel_step=pixel_step,
        processes=0,
        memory=memory,
    )


def _question(
    network: Network,
    source: str | None,
    index: int | None,
    label: int | None,
    norm: Norm,
    radius: float | None,
    clip: tuple[float, float] | None,
    targets: str,
) -> _Question:
    if source is None or radius is None:
        missing = "--input" if source is None else "--radius"
        raise InputError(f"{missing} is missing; give --input and --radius, or a .vnnlib file")
    data_box = None
    if network.input_lo is not None and network.input_hi is not None:
        data_box = (network.input_lo, network.input_hi)
    point = pick_point(read_array(source), index, network.input_shape, data_box, source)
    lo: Any = network.input_lo if clip is None else clip[0]
    hi: Any = network.input_hi if clip is None else clip[1]
    if clip is not None and not -np.inf < clip[0] <= clip[1] < np.inf:
        raise InputError(f"--clip is {clip[0]} {clip[1]}; expected finite numbers LO <= HI")
    if not 0 <= radius < np.inf:
        raise InputError(f"--radius is {radius}; expected a finite number >= 0")
    where = source if index is None else f"{source} [{index}]"
    try:
        region = Ball(norm, point, radius, lo, hi)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    chosen = int(network.classify(point)[0]) if label is None else label
    return _Question(network, region, chosen, _targets(targets), where)


@contextmanager
def _watch(console: Console) -> Iterator[ProgressCallback]:
    """Show progress on a terminal, and nothing anywhere else."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("starting", total=None)

        def update(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total)

        yield update


def _refuse_unwritable(*targets: Path | None) -> None:
    """Find out before a long run that its result could not be written after it."""
    for target in targets:
        if target is None:
            continue
        reason = ""
        if target.is_dir():
            reason = "Is a directory"
        elif not target.parent.is_dir():
            reason = "No such directory"
        elif not os.access(target if target.exists() else target.parent, os.W_OK):
            reason = "Permission denied"
        if reason:
            raise InputError(f"{target}: cannot be written ({reason})")


def _json_path(target: str | None) -> Path | None:
    return None if target in (None, "-") else Path(str(target))


def _write_json(target: str | None, tree: dict[str, Any]) -> None:
    if target is None:
        return
    text = json.dumps(tree, indent=1, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror or error})") from error


def _tree(
    network: Network, result: Result, region: Region | None, extra: dict[str, Any]
) -> dict[str, Any]:
    return {
        "bnncert": bnncert.__version__,
        "model": network.source,
        "network_hash": network.content_hash,
        "sign_zero": network.sign_zero,
        "region": None if region is None else region.to_dict(),
        **extra,
        **result.to_dict(),
    }


def _show(console: Console, title: str, result: Result) -> None:
    console.print(title, soft_wrap=True)
    console.print(result_table(result))
    summary = f" in {result.seconds:.2f} s"
    if np.isfinite(result.lower):
        summary += f", margin at least {number(result.lower)}"
    found = result.counterexample
    if found is not None:
        summary += (
            f": counterexample for {found.target}, margin {number(float(found.value))}, replayed "
            f"in {' and '.join(found.replayed_in)} arithmetic"
        )
    console.print(Text.assemble(status_text(result.status), summary), soft_wrap=True)
    for note in result.notes:
        console.print(f"note: {note}", soft_wrap=True)


def _show_explanation(console: Console, result: Result, method: str) -> None:
    if not any(t.details for t in result.targets):
        console.print(f"method {method} has nothing to explain; --explain is for sdp")
        return
    console.print(presolve_table(result))
    console.print(stage_table(result))


@app.command()
def verify(
    model: ModelArgument,
    spec: Annotated[
        Path | None, typer.Argument(help="VNN-LIB query: .vnnlib or .vnnlib.gz.")
    ] = None,
    input_: InputOption = None,
    index: IndexOption = None,
    label: LabelOption = None,
    norm: NormOption = "linf",
    radius: RadiusOption = None,
    clip: ClipOption = None,
    targets: TargetsOption = "all",
    ties: TiesOption = "violation",
    method: Annotated[str, typer.Option("--method", help="See `bnncert methods`.")] = "auto",
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
    options = _options(seed, form, samples, restarts, pixel_step, memory)
    options = replace(options, coupling=coupling)
    _refuse_unwritable(witness, certificate, _json_path(json_))
    network = load(model)
    if sign_zero is not None:
        network = network.with_sign_zero(sign_zero)
    console = _Console(stderr=json_ == "-")
    region: Region | None = None
    extra: dict[str, Any]
    if spec is not None:
        if any(option is not None for option in (input_, index, label, radius, clip)):
            raise InputError(
                "give either a .vnnlib file or --input, --radius and what goes with them, not both"
            )
        specification = read_vnnlib(spec)
        with _watch(_Console(stderr=True)) as progress:
            result = verify_specification(
                network,
                specification,
                method=method,
                timeout=timeout,
                sign_zero=sign_zero,
                options=options,
                progress=progress,
                arithmetic=arithmetic,
                certificate=certificate,
            )
        console.print(result.vnncomp_word)
        extra = {"specification": str(spec)}
    else:
        question = _question(network, input_, index, label, norm, radius, clip, targets)
        region = question.region
        with _watch(_Console(stderr=True)) as progress:
            result = verify_api(
                network,
                question.region,
                question.label,
                targets=question.targets,
                ties=ties,
                method=method,
                timeout=timeout,
                sign_zero=sign_zero,
                options=options,
                progress=progress,
                arithmetic=arithmetic,
                certificate=certificate,
            )
        title = f"{model.name}, {question.where}: label {question.label}, {region.describe()}"
        _show(console, title, result)
        extra = {"input": question.where}
    if certificate is not None:
        _show_certificate(console, result)
    if witness is not None:
        try:
            witness.write_text(vnncomp_result(result), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{witness}: cannot be written ({error.strerror})") from error
    extra |= {"seed": seed, "arithmetic": arithmetic}
    _write_json(json_, _tree(network, result, region, extra))


def _show_certificate(console: Console, result: Result) -> None:
    """Say where the certificate is, or why there is none."""
    if result.certificate is not None:
        size = Path(result.certificate).stat().st_size
        console.print(f"certificate: {result.certificate} ({size} bytes)", soft_wrap=True)
    elif result.trusted is not None:
        console.print(f"not certified: the verdict rests on trust in {result.trusted}")
    else:
        console.print("no certificate: there is no verdict")


@app.command()
def check(
    certificate: Annotated[Path, typer.Argument(help="Certificate that verify wrote.")],
    model: Annotated[Path, typer.Option("--model", help="The network file it is about.")],
    json_: JsonOption = None,
) -> None:
    """Check a certificate in exact arithmetic: exit code 0 accepted, 1 rejected, 2 unreadable."""
    console = _Console(stderr=json_ == "-")
    network = load(model)
    tree: dict[str, Any] = {"certificate": str(certificate), "model": str(model)}
    try:
        report = check_certificate(certificate, network)
    except UnreadableError as error:
        raise FormatError(f"{certificate}: {error}") from error
    except OSError as error:
        raise FormatError(f"{certificate}: {error.strerror or error}") from error
    except RejectedError as error:
        console.print(f"rejected: {error}", soft_wrap=True)
        _write_json(json_, tree | {"accepted": False, "reason": str(error)})
        raise typer.Exit(1) from error
    console.print(f"accepted: {report.statement}", soft_wrap=True)
    console.print(
        f"{report.targets} targets, {report.clauses} clauses, {report.leaves} leaves, "
        f"{report.seconds:.2f} s"
    )
    tree |= {"accepted": True, "statement": report.statement, "verdict": report.verdict}
    tree |= {"clauses": report.clauses, "leaves": report.leaves, "seconds": report.seconds}
    _write_json(json_, tree)


@app.command()
def bound(
    model: ModelArgument,
    input_: InputOption = None,
    index: IndexOption = None,
    label: LabelOption = None,
    norm: NormOption = "linf",
    radius: RadiusOption = None,
    clip: ClipOption = None,
    targets: TargetsOption = "all",
    method: Annotated[str, typer.Option("--method", help="See `bnncert methods`.")] = "sdp",
    timeout: TimeoutOption = None,
    seed: SeedOption = 0,
    sign_zero: SignZeroOption = None,
    form: FormOption = "lattice",
    samples: SamplesOption = 10_000,
    restarts: RestartsOption = None,
    pixel_step: PixelOption = None,
    memory: MemoryOption = 4.0,
    solver: SolverOption = None,
    sparsity: SparsityOption = None,
    coupling: CouplingOption = "auto",
    explain: ExplainOption = False,
    json_: JsonOption = None,
) -> None:
    """Bound the margin over each rival class by one method."""
    options = _options(seed, form, samples, restarts, pixel_step, memory)
    options = replace(options, solver=solver, sparsity=sparsity, coupling=coupling)
    _refuse_unwritable(_json_path(json_))
    network = load(model)
    if sign_zero is not None:
        network = network.with_sign_zero(sign_zero)
    question = _question(network, input_, index, label, norm, radius, clip, targets)
    with _watch(_Console(stderr=True)) as progress:
        result = bound_api(
            network,
            question.region,
            question.label,
            targets=question.targets,
            method=method,
            timeout=timeout,
            options=options,
            progress=progress,
        )
    console = _Console(stderr=json_ == "-")
    title = f"{model.name}, {question.where}: label {question.label}, {question.region.describe()}"
    _show(console, f"{title}, method {method}", result)
    if explain:
        _show_explanation(console, result, method)
    extra = {"input": question.where, "seed": seed}
    _write_json(json_, _tree(network, result, question.region, extra))


@app.command()
def radius(
    model: ModelArgument,
    input_: InputOption = None,
    index: IndexOption = None,
    label: LabelOption = None,
    norm: NormOption = "linf",
    maximum: Annotated[
        float | None, typer.Option("--max", help="Largest radius of interest.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", help="Gap to end at (default: 1 % of the falsified radius)."),
    ] = None,
    clip: ClipOption = None,
    targets: TargetsOption = "all",
    ties: TiesOption = "violation",
    method: Annotated[str, typer.Option("--method", help="See `bnncert methods`.")] = "auto",
    timeout: TimeoutOption = None,
    seed: SeedOption = 0,
    sign_zero: SignZeroOption = None,
    form: FormOption = "lattice",
    samples: SamplesOption = 10_000,
    restarts: RestartsOption = None,
    pixel_step: PixelOption = None,
    memory: MemoryOption = 4.0,
    json_: JsonOption = None,
) -> None:
    """Find the largest certified and the smallest falsified radius around a point."""
    options = _options(seed, form, samples, restarts, pixel_step, memory)
    _refuse_unwritable(_json_path(json_))
    if input_ is None:
        raise InputError("--input is missing; give the point to search around")
    network = load(model)
    if sign_zero is not None:
        network = network.with_sign_zero(sign_zero)
    question = _question(network, input_, index, label, norm, 0.0, clip, targets)
    centre = question.region
    assert isinstance(centre, Ball)
    with _watch(_Console(stderr=True)) as progress:
        result = find_radius(
            network,
            centre.middle,
            question.label,
            norm,
            clip_lo=centre.clip_lo,
            clip_hi=centre.clip_hi,
            maximum=maximum,
            tolerance=tolerance,
            targets=question.targets,
            ties=ties,
            method=method,
            timeout=timeout,
            options=options,
            progress=progress,
        )
    console = _Console(stderr=json_ == "-")
    console.print(
        f"{model.name}, {question.where}: label {question.label}, norm {norm}", soft_wrap=True
    )
    console.print(radius_table(result))
    found = result.counterexample
    if found is not None:
        console.print(
            f"counterexample for {found.target}, margin {number(float(found.value))}, replayed in "
            f"{' and '.join(found.replayed_in)} arithmetic",
            soft_wrap=True,
        )
    elif result.lower >= result.limit:
        reach = "the whole data box" if result.covers_data else "the largest radius looked at"
        console.print(f"robust up to {reach}", soft_wrap=True)
    tree = {
        "bnncert": bnncert.__version__,
        "model": network.source,
        "network_hash": network.content_hash,
        "sign_zero": network.sign_zero,
        "input": question.where,
        "method": method,
        "seed": seed,
        **result.to_dict(),
    }
    _write_json(json_, tree)


@app.command()
def run(
    model: ModelArgument,
    data: Annotated[
        str,
        typer.Option("--data", help="Points: FILE.npz, FILE.npz:KEY or .npy; labels beside them."),
    ],
    out: Annotated[Path, typer.Option("--out", help="SQLite file of the results; resumed.")],
    radii: Annotated[
        str, typer.Option("--radius", help="Radii R1,R2,.. in the network's input units.")
    ],
    count: Annotated[
        int | None, typer.Option("--count", help="How many points (default: all).")
    ] = None,
    first: Annotated[int, typer.Option("--first", help="Number of the first point.")] = 0,
    norm: NormOption = "linf",
    clip: ClipOption = None,
    targets: TargetsOption = "all",
    ties: TiesOption = "violation",
    method: Annotated[str, typer.Option("--method", help="See `bnncert methods`.")] = "auto",
    timeout: Annotated[
        float | None, typer.Option("--timeout", help="Seconds for each instance.")
    ] = None,
    seed: SeedOption = 0,
    sign_zero: SignZeroOption = None,
    workers: Annotated[int, typer.Option("--workers", help="Processes at work at once.")] = 1,
    memory: MemoryOption = 4.0,
    certificates: Annotated[
        Path | None,
        typer.Option("--certificates", help="Folder for a certificate of every verdict."),
    ] = None,
) -> None:
    """Verify many points at many radii; the same command again goes on where it stopped."""
    _refuse_unwritable(out)
    if certificates is not None:
        try:
            certificates.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{certificates}: {error.strerror or error}") from error
    folder = None if certificates is None else str(certificates)
    settings = Settings(norm, _targets(targets), ties, method, timeout, seed, memory, folder)
    network = load(model)
    if sign_zero is not None:
        network = network.with_sign_zero(sign_zero)
    if clip is not None and not -np.inf < clip[0] <= clip[1] < np.inf:
        raise InputError(f"--clip is {clip[0]} {clip[1]}; expected finite numbers LO <= HI")
    campaign = plan(
        network,
        read_data(data),
        _radii(radii),
        first=first,
        count=count,
        clip=clip,
        settings=settings,
    )
    with ResultsFile(out) as results:
        _run_campaign(campaign, results, workers)


def _radii(text: str) -> tuple[float, ...]:
    try:
        radii = tuple(float(part) for part in text.split(","))
    except ValueError:
        radii = ()
    if not radii or not all(0 <= r < np.inf for r in radii):
        raise InputError(f"--radius is {text!r}; expected numbers >= 0 separated by commas")
    return radii


def _run_campaign(campaign: Campaign, results: ResultsFile, workers: int) -> None:
    """Run with a bar on a terminal; Ctrl-C shows what there is and goes on up."""
    console, watching = _wide_console(), _Console(stderr=True)
    for note in campaign.notes:
        console.print(f"note: {note}", soft_wrap=True)
    known, total = len(finished_rows(campaign, results)), len(campaign.instances)
    if known:
        line = f"{known} of {total} instances are in {results.path} already"
        console.print(line, soft_wrap=True)
    columns = (
        TextColumn("verifying"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    try:
        with Progress(
            *columns, console=watching, transient=True, disable=not watching.is_terminal
        ) as bar:
            task = bar.add_task("verifying", total=None, text="")

            def report(done: int, total: int, row: Row | None) -> None:
                text = "" if row is None else f"input {row.key.input_index}: {row.status}"
                bar.update(task, completed=done, total=total, text=text)

            rows = run_campaign(campaign, results, workers=workers, progress=report)
    except KeyboardInterrupt:
        rows = finished_rows(campaign, results)
        console.print(summary_table(rows))
        console.print(
            f"{len(rows)} of {total} instances are in {results.path}; the same command goes on "
            "from there",
            soft_wrap=True,
        )
        # The end after Ctrl-C is abrupt and empties no buffers.
        sys.stdout.flush()
        raise
    console.print(summary_table(rows))
    console.print(f"{len(rows)} instances in {results.path}", soft_wrap=True)


def _wide_console() -> Console:
    """Return a console that is wide enough for a table where no terminal sets its width."""
    console = _Console()
    return console if console.is_terminal else _Console(width=140)


@app.command()
def info(model: ModelArgument, json_: JsonOption = None) -> None:
    """Print layers, sizes, sparsity and thresholds of a network."""
    _refuse_unwritable(_json_path(json_))
    network = load(model)
    console = _Console(stderr=json_ == "-")
    shape = " x ".join(map(str, network.input_shape))
    box = "not stated"
    if network.input_lo is not None and network.input_hi is not None:
        box = f"[{network.input_lo.min():.9g}, {network.input_hi.max():.9g}]"
    lines = (
        f"{network.source} ({network.kind})",
        f"inputs {network.inputs} (shape {shape}), data box {box}, classes {network.classes}, "
        f"threshold layers {network.depth}, zero weights {100 * network.zero_fraction:.2f} %",
        f"hash {network.content_hash}",
    )
    for line in lines:
        console.print(line, soft_wrap=True)
    (console if console.is_terminal else _Console(stderr=json_ == "-", width=140)).print(
        network_table(network)
    )
    for note in network.notes:
        console.print(f"note: {note}", soft_wrap=True)
    layers = [
        {
            "name": layer.name,
            "inputs": layer.inputs,
            "neurons": layer.size,
            "nonzeros": int(layer.weights.nnz),
            "values": weight_values(layer.weights.data),
            "sign_zero": layer.sign_zero,
            "integer": layer.is_lattice,
        }
        for layer in network.layers
    ]
    weights = network.output.weights
    output = {
        "name": network.output.name,
        "inputs": int(weights.shape[1]),
        "neurons": network.classes,
        "nonzeros": int(np.count_nonzero(weights)),
        "values": weight_values(weights[weights != 0]),
    }
    lo, hi = network.input_lo, network.input_hi
    _write_json(
        json_,
        {
            "model": network.source,
            "kind": network.kind,
            "hash": network.content_hash,
            "inputs": network.inputs,
            "input_shape": list(network.input_shape),
            "input_lo": None if lo is None else lo.tolist(),
            "input_hi": None if hi is None else hi.tolist(),
            "classes": network.classes,
            "sizes": list(network.sizes),
            "zero_fraction": network.zero_fraction,
            "layers": layers,
            "output": output,
            "output_transform": network.output_transform,
            "notes": list(network.notes),
        },
    )


@app.command()
def methods() -> None:
    """Print the methods, what they promise and what they need."""
    console = _Console()
    if not console.is_terminal:
        console = _Console(width=140)
    console.print(methods_table())


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="Network file to read.")],
    target: Annotated[Path, typer.Argument(help="File to write: .npz, .json or .onnx.")],
    sign_zero: SignZeroOption = None,
) -> None:
    """Convert a network file; the result is the same network, threshold by threshold."""
    network = load(source)
    if sign_zero is not None:
        network = network.with_sign_zero(sign_zero)
    network.save(target)
    written = load(target)
    if written.content_hash != network.content_hash:
        raise InputError(f"{target}: reads back as another network; the file was left for a look")
    _Console().print(f"{target}: {written.content_hash}", soft_wrap=True)


@app.command()
def demo(
    count: Annotated[int, typer.Option("--count", help="How many of the 100 images.")] = 10,
    delta: Annotated[float, typer.Option("--delta", help="Radius in pixels of 127.5.")] = 0.25,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds per image.")] = 30.0,
    network: Annotated[
        Literal["sparse", "dense"], typer.Option("--network", help="Which bundled network.")
    ] = "sparse",
) -> None:
    """Verify the bundled MNIST network on its first images and show what was found."""
    run_demo(_Console(), count=count, delta=delta, timeout=timeout, which=network)


def _usage_error() -> type[Exception]:
    """Return typer's base of usage errors (its module differs between versions of typer)."""
    return next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main() -> None:
    """Run the command line; every foreseen error is one line on stderr."""
    usage_error = _usage_error()
    code = 2
    try:
        outcome = app(standalone_mode=False)
        code = outcome if isinstance(outcome, int) else 0
    except BnncertError as error:
        _complain(str(error))
    except (_InterruptedError, KeyboardInterrupt, typer.Abort):
        _complain("interrupted")
        sys.stderr.flush()
        # At once: a solver's threads may still be at work, and C++ aborts when it finds them.
        os._exit(130)
    except MemoryError:
        _complain("out of memory; try a smaller batch (--restarts, --samples) or model")
    except (_SystemError, OSError) as error:
        # What is still in the buffer must not fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        cause = error.__cause__ or error
        if isinstance(cause, BrokenPipeError):
            # The reader of a pipe is gone: nothing is left to say to it.
            code = 0
        else:
            _complain(str(cause))
    except typer.Exit as error:
        code = error.exit_code
    except usage_error as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        if type(error).__name__ == "NoArgsIsHelpError" or not text:
            # Bare `bnncert`: the message would be the whole help text.
            text = "no command given; see bnncert --help"
        _complain(text)
    sys.exit(code)


def _complain(text: str) -> None:
    print("bnncert: " + " ".join(text.split()), file=sys.stderr)


if __name__ == "__main__":
    main()
