"""What `bnncert monotone` and `bnncert fair` share: their options, and the answer as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bnncert.cli.bundled_names import point_source
from bnncert.cli.cluster_options import with_cluster
from bnncert.cli.command_question import read_network
from bnncert.cli.consoles import Talk
from bnncert.cli.options import CertificateOption, JsonOption, MethodOptions, read_clip
from bnncert.cli.output import json_path, refuse_unwritable, write_json
from bnncert.cli.progress import watch
from bnncert.cli.result_views import network_tree
from bnncert.cli.time_limit import finite_limit, limit_text, remaining
from bnncert.engine.answer import Interrupted
from bnncert.errors import InputError
from bnncert.model.formats.inputs import pick_point, read_array
from bnncert.model.network import Network
from bnncert.questions.relations.relation_answer import MOST_SHARED, RelationResult
from bnncert.questions.relations.values_table import TableColumns
from bnncert.regions import Box


@dataclass(frozen=True)
class TableOptions:
    """The inputs that count."""

    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            help="Names, bounds, steps and one-hot groups of the inputs (.json), or their names "
            "(first line of a .csv).",
        ),
    ] = None
    input_: Annotated[
        str | None,
        typer.Option("--input", help="Record for --radius: .npy or FILE.npz:KEY."),
    ] = None
    index: Annotated[int | None, typer.Option("--index", help="Which record of a batch.")] = None
    radius: Annotated[
        float | None,
        typer.Option(
            "--radius",
            help="Only inputs within this distance of the record count, each by itself; what "
            "changes may take all of its values.",
        ),
    ] = None
    clip: Annotated[
        tuple[float, float] | None,
        typer.Option("--clip", help="Data box LO HI (default: --table, else the network file)."),
    ] = None
    grid: Annotated[
        float | None,
        typer.Option("--grid", help="Step of inputs without one in --table: 1 for integers."),
    ] = None
    one_hot: Annotated[
        list[str] | None,
        typer.Option(
            "--one-hot", help="Inputs of which exactly one is 1, as in 3,4,5; repeatable."
        ),
    ] = None


@dataclass(frozen=True)
class RelationOutputs:
    """The files that the commands write."""

    certificate: CertificateOption = None
    json_: JsonOption = None


@dataclass(frozen=True, eq=False)
class AskedTable:
    """A network and the description of its inputs, as the options state them."""

    model: Path
    network: Network
    columns: TableColumns
    options: TableOptions
    groups: tuple[tuple[int, ...], ...]

    @staticmethod
    def read(model: Path, options: TableOptions, settings: MethodOptions) -> AskedTable:
        """Read the network and the table."""
        network = read_network(model, settings.sign_zero)
        columns = TableColumns.plain(network.inputs)
        if options.table is not None:
            columns = TableColumns.read(options.table, network.inputs)
        groups = [*columns.groups.values()]
        groups += [tuple(_columns(columns, text)) for text in options.one_hot or ()]
        return AskedTable(model, network, columns, options, tuple(groups))

    def region(self, changing: set[int]) -> Box:
        """Return the inputs that count; `changing` are those that may take all of their values."""
        options, network = self.options, self.network
        clip = read_clip(options.clip)
        columns = self.columns
        if clip is not None:
            low, high = (
                np.where(np.isnan(v), c, v)
                for v, c in zip((columns.lo, columns.hi), clip, strict=True)
            )
            columns = TableColumns(columns.names, low, high, columns.step, columns.groups)
        box = columns.box(network, options.grid)
        if (options.input_ is None) != (options.radius is None):
            missing = "--radius" if options.radius is None else "--input"
            raise InputError(f"{missing} is missing; give the record and the radius around it")
        if options.input_ is None or options.radius is None:
            return box
        if not 0 <= options.radius < np.inf:
            raise InputError(f"--radius is {options.radius}; expected a finite number >= 0")
        source, index = point_source(options.input_, options.index)
        point = pick_point(read_array(source), index, network.input_shape, (box.lo, box.hi), source)
        keep = np.isin(np.arange(network.inputs), sorted(changing))
        lo = np.where(keep, box.lo, np.maximum(box.lo, point - options.radius))
        hi = np.where(keep, box.hi, np.minimum(box.hi, point + options.radius))
        try:
            return Box(lo, hi, box.grid)
        except InputError as error:
            raise InputError(f"{options.input_}: {error}") from error


def read_feature(columns: TableColumns, text: str) -> tuple[int | tuple[int, ...], list[float]]:
    """Return what an option names: a feature or group, and its values in NAME=V1,V2."""
    name, equals, numbers = text.partition("=")
    found: int | tuple[int, ...] = (
        tuple(_columns(columns, name)) if "," in name else columns.find(name.strip())
    )
    if not equals:
        return found, []
    try:
        return found, [float(v) for v in numbers.split(",")]
    except ValueError:
        raise InputError(f"{text!r}: expected values as in {name}=0,1") from None


def _columns(columns: TableColumns, text: str) -> list[int]:
    """Return the columns of a list of names or numbers."""
    found = [columns.find(part.strip()) for part in text.split(",")]
    numbers = [f for f in found if isinstance(f, int)]
    if len(numbers) < len(found):
        raise InputError(f"{text!r}: expected features, not groups")
    return numbers


def answer_relation(
    ctx: typer.Context,
    talk: Talk,
    asked: AskedTable,
    settings: MethodOptions,
    cluster: str | None,
    outputs: RelationOutputs,
    ask: Callable[..., RelationResult],
    title: str,
    method: str,
) -> None:
    """Ask, and print and write the answer; Ctrl-C shows what is known."""
    limit = finite_limit(settings.timeout)
    opening = f"{asked.model.name}, {title}; {limit_text(ctx, settings.timeout)}"
    tree = {**network_tree(asked.network), "seed": settings.seed, "method": method}
    with (
        with_cluster(settings.options(), cluster, talk) as options,
        watch(talk.watching, limit, talk.details.later(opening)) as progress,
    ):
        interrupt = None
        try:
            found = ask(
                method=method,
                timeout=remaining(settings.timeout),
                options=options,
                progress=progress,
                certificate=outputs.certificate,
            )
        except Interrupted as stop:
            interrupt, found = stop, stop.answer
        progress.open()
        with progress.paused():
            _show(talk, found)
            if interrupt is not None:
                done = sum(part.status == "holds" for part in found.parts)
                line = f"{done} of {found.count} parts are proved"
                after = f"interrupted after {found.seconds:.2f} s"
                talk.details.print(f"{after}: {line}", soft_wrap=True)
            elif outputs.certificate is not None:
                _show_certificate(talk, found)
    write_json(outputs.json_, {**tree, **found.to_dict()})
    if interrupt is not None:
        raise interrupt


def refuse_files(model: Path, options: TableOptions, outputs: RelationOutputs) -> None:
    """Raise if a file cannot be written or is one that the command reads."""
    written = (outputs.certificate, json_path(outputs.json_))
    refuse_unwritable(*written, read=(model, options.table, options.input_))


def _show(talk: Talk, result: RelationResult) -> None:
    """Print the parts with -v, the answer, and the pair of inputs."""
    if talk.verbose:
        parts = replace(result.table(), above="parts:", below=())
        talk.details.print(str(parts), soft_wrap=True)
    talk.answer.print(result.heading, soft_wrap=True)
    for line in result.pair_lines(len(result.names) if talk.verbose else MOST_SHARED):
        talk.details.print(f"  {line}", soft_wrap=True)
    if result.pair is not None:
        replayed = " and ".join(result.pair.replayed_in)
        talk.details.print(f"  both replayed in {replayed} arithmetic", soft_wrap=True)
    for part in result.parts:
        if part.status in ("unknown", "timeout"):
            low, high = part.bound_texts()
            bounds = f"lower bound {low}, upper bound {high}"
            talk.details.print(f"  open: {part.name}, {bounds}", soft_wrap=True)
    for note in result.notes:
        talk.details.print(f"note: {note}", soft_wrap=True)


def _show_certificate(talk: Talk, result: RelationResult) -> None:
    if result.certificate is None:
        why = "there is no verdict" if result.status in ("unknown", "timeout") else "see the notes"
        talk.details.print(f"no certificate: {why}")
        return
    size = Path(result.certificate).stat().st_size
    talk.details.print(f"certificate: {result.certificate} ({size} bytes)", soft_wrap=True)
