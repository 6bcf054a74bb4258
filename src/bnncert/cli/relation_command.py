"""What `bnncert monotone` and `bnncert fair` share: their options, and the answer as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bnncert.cli.bundled_names import point_source
from bnncert.cli.cluster_options import with_cluster
from bnncert.cli.command_question import read_network
from bnncert.cli.consoles import Consoles
from bnncert.cli.options import (
    CertificateOption,
    JsonOption,
    MethodOptions,
    PrintOptions,
    read_clip,
)
from bnncert.cli.output import json_path, refuse_unwritable, write_json
from bnncert.cli.progress import watch
from bnncert.cli.result_views import network_tree
from bnncert.cli.time_limit import finite_limit, limit_text, remaining
from bnncert.cli.unused import refuse_unread
from bnncert.engine.answer import Interrupted
from bnncert.errors import InputError
from bnncert.model.formats.inputs import pick_point, read_array
from bnncert.model.network import Network
from bnncert.questions.relations.relation_answer import MOST_SHARED, RelationResult
from bnncert.questions.relations.table_columns import TableColumns
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


@dataclass(eq=False)
class RelationCommand:
    """One call of a command: its options, and the network and the table that they name."""

    ctx: typer.Context
    model: Path
    table: TableOptions
    method: str
    settings: MethodOptions
    cluster: str | None
    outputs: RelationOutputs
    printing: InitVar[PrintOptions]
    consoles: Consoles = field(init=False)

    def __post_init__(self, printing: PrintOptions) -> None:
        refuse_unread(self.ctx, self.method)
        self.consoles = Consoles.of(self.ctx, printing, stderr=self.outputs.json_ == "-")
        written = (self.outputs.certificate, json_path(self.outputs.json_))
        refuse_unwritable(*written, read=(self.model, self.table.table, self.table.input_))

    @cached_property
    def network(self) -> Network:
        """The network."""
        return read_network(self.model, self.settings.sign_zero)

    @cached_property
    def columns(self) -> TableColumns:
        """The names, bounds and steps of its inputs."""
        if self.table.table is None:
            return TableColumns.plain(self.network.inputs)
        return TableColumns.read(self.table.table, self.network.inputs)

    @property
    def about(self) -> dict[str, Any]:
        """The arguments of the question about one-hot groups and names."""
        stated = [tuple(_columns(self.columns, text)) for text in self.table.one_hot or ()]
        return {"one_hot": [*self.columns.groups.values(), *stated], "names": self.columns.names}

    def feature(self, text: str) -> tuple[int | tuple[int, ...], list[float]]:
        """Return what an option names: a feature or group, and its values in NAME=V1,V2."""
        name, equals, numbers = text.partition("=")
        found: int | tuple[int, ...] = (
            tuple(_columns(self.columns, name)) if "," in name else self.columns.find(name.strip())
        )
        if not equals:
            return found, []
        try:
            return found, [float(v) for v in numbers.split(",")]
        except ValueError:
            raise InputError(f"{text!r}: expected values as in {name}=0,1") from None

    def region(self, changing: set[int]) -> Box:
        """Return the inputs that count; `changing` are those that may take all of their values."""
        options, network = self.table, self.network
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

    def answer(self, title: str, ask: Callable[..., RelationResult]) -> None:
        """Ask, and print and write the answer; Ctrl-C shows what is known."""
        settings, outputs, consoles = self.settings, self.outputs, self.consoles
        opening = f"{self.model.name}, {title}; {limit_text(self.ctx, settings.timeout)}"
        tree = {**network_tree(self.network), "seed": settings.seed, "method": self.method}
        interrupt = None
        with (
            with_cluster(settings.options(), self.cluster, consoles) as options,
            watch(
                consoles.watching, finite_limit(settings.timeout), consoles.details.later(opening)
            ) as progress,
        ):
            try:
                found = ask(
                    method=self.method,
                    timeout=remaining(settings.timeout),
                    options=options,
                    progress=progress,
                    certificate=outputs.certificate,
                )
            except Interrupted as stop:
                interrupt, found = stop, stop.answer
            progress.open()
            with progress.paused():
                _show(consoles, found)
                if interrupt is not None:
                    done = sum(part.status == "holds" for part in found.parts)
                    line = f"{done} of {found.count} parts are proved"
                    after = f"interrupted after {found.seconds:.2f} s"
                    consoles.details.print(f"{after}: {line}", soft_wrap=True)
                elif outputs.certificate is not None:
                    _show_certificate(consoles, found)
        write_json(outputs.json_, {**tree, **found.to_dict()})
        if interrupt is not None:
            raise interrupt


def _columns(columns: TableColumns, text: str) -> list[int]:
    """Return the columns of a list of names or numbers."""
    found = [columns.find(part.strip()) for part in text.split(",")]
    numbers = [f for f in found if isinstance(f, int)]
    if len(numbers) < len(found):
        raise InputError(f"{text!r}: expected features, not groups")
    return numbers


def _show(consoles: Consoles, result: RelationResult) -> None:
    """Print the parts with -v, the answer, and the pair of inputs."""
    if consoles.verbose:
        parts = replace(result.table(), above="parts:", below=())
        consoles.details.print(str(parts), soft_wrap=True)
    consoles.answer.print(result.heading, soft_wrap=True)
    for line in result.pair_lines(len(result.names) if consoles.verbose else MOST_SHARED):
        consoles.details.print(f"  {line}", soft_wrap=True)
    if result.pair is not None:
        replayed = " and ".join(result.pair.replayed_in)
        consoles.details.print(f"  both replayed in {replayed} arithmetic", soft_wrap=True)
    for part in result.parts:
        if part.status in ("unknown", "timeout"):
            low, high = part.bound_texts()
            bounds = f"lower bound {low}, upper bound {high}"
            consoles.details.print(f"  open: {part.name}, {bounds}", soft_wrap=True)
    for note in result.notes:
        consoles.details.print(f"note: {note}", soft_wrap=True)


def _show_certificate(consoles: Consoles, result: RelationResult) -> None:
    if result.certificate is None:
        why = "there is no verdict" if result.status in ("unknown", "timeout") else "see the notes"
        consoles.details.print(f"no certificate: {why}")
        return
    size = Path(result.certificate).stat().st_size
    consoles.details.print(f"certificate: {result.certificate} ({size} bytes)", soft_wrap=True)
