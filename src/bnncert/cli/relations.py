"""`bnncert monotone` and `bnncert fair`: whether a relation between two inputs holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnncert.cli.answer_view import AnswerView, begin
from bnncert.cli.files import network_tree, point_source
from bnncert.cli.grouping import grouped
from bnncert.cli.options import ModelOptions, Outputs, PrintOptions, SharedMethodOptions, read_clip
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.questions.relations.relation_answer import RelationResult
    from bnncert.questions.relations.table_columns import TableColumns
    from bnncert.regions import Box


@dataclass(frozen=True)
class TableOptions:
    """The inputs that count."""

    table: Annotated[
        Path | None,
        "Names, bounds, steps and one-hot groups of the inputs (.json), or their names "
        "(first line of a .csv).",
    ] = None
    input_: Annotated[str | None, "Record for --radius: .npy or FILE.npz:KEY."] = None
    index: Annotated[int | None, "Which record of a batch."] = None
    radius: Annotated[
        float | None,
        "Only inputs within this distance of the record count, each by itself; what "
        "changes may take all of its values.",
    ] = None
    clip: Annotated[
        tuple[float, float] | None, "Data box LO HI (default: --table, else the network file)."
    ] = None
    grid: Annotated[float | None, "Step of inputs without one in --table: 1 for integers."] = None
    step: Annotated[
        float | None,
        "What changes does so by multiples of this step (default: the step of the grid, "
        "else by any amount).",
    ] = None
    one_hot: Annotated[
        list[str] | None, "Inputs of which exactly one is 1, as in 3,4,5; repeatable."
    ] = None


@dataclass(frozen=True)
class RelationOptions:
    """The options of both commands."""

    table: TableOptions
    settings: SharedMethodOptions
    outputs: Outputs
    printing: PrintOptions


@grouped
def monotone(
    *,
    ctx: typer.Context,
    source: ModelOptions,
    feature: Annotated[str, "The feature, by name or number; NAME=V1,V2,.. states its values."],
    decreasing: Annotated[bool, "The class or score is kept if the feature decreases."] = False,
    label: Annotated[int | None, "The class that is kept (default: the second of two)."] = None,
    score: Annotated[int | None, "The score that does not fall, instead of a class."] = None,
    chosen: RelationOptions,
) -> None:
    """Decide whether a class or score is monotone in a feature, with a pair of inputs if not."""
    from bnncert.questions.relations.relations import monotone as monotone_api

    command = _RelationCommand(ctx, source, chosen)
    found, values = command.feature(feature)
    if not isinstance(found, int):
        raise InputError(f"--feature is {feature}; a one-hot group has no order")
    ask = partial(
        monotone_api,
        command.network,
        found,
        command.region({found}),
        increasing=not decreasing,
        label=label,
        score=score,
        step=chosen.table.step,
        values=values or None,
        **command.about,
    )
    title = f"{'decreasing' if decreasing else 'increasing'} in {command.columns.names[found]}"
    command.answer(title, ask)


@grouped
def fair(
    *,
    ctx: typer.Context,
    source: ModelOptions,
    protect: Annotated[
        list[str],
        "A protected feature, by name or number (NAME=V1,V2 states its values), or a "
        "one-hot group, by its name or as in 3,4,5; repeatable.",
    ],
    chosen: RelationOptions,
) -> None:
    """Decide whether protected attributes can change the class, with a pair of inputs if so."""
    from bnncert.questions.relations.relations import fair as fair_api

    command = _RelationCommand(ctx, source, chosen)
    protected: list[int | tuple[int, ...]] = []
    values: dict[int, list[float]] = {}
    for text in protect:
        found, listed = command.feature(text)
        protected.append(found)
        if listed and not isinstance(found, int):
            raise InputError(f"--protect is {text!r}; a one-hot group has no values of its own")
        if listed and isinstance(found, int):
            values[found] = listed
    single, step = [f for f in protected if isinstance(f, int)], chosen.table.step
    changing = {f for found in protected for f in ([found] if isinstance(found, int) else found)}
    ask = partial(
        fair_api,
        command.network,
        protected,
        command.region(changing),
        values=values,
        step={} if step is None else {f: step for f in single if f not in values},
        **command.about,
    )
    title = f"protected: {', '.join(protect)}"
    command.answer(title, ask)


class _RelationCommand:
    """One call of a command: its options, and the network and the table that they name."""

    def __init__(self, ctx: typer.Context, source: ModelOptions, chosen: RelationOptions) -> None:
        from bnncert.questions.relations.table_columns import TableColumns

        self.ctx, self.model = ctx, source.model
        self.table, self.settings = table, settings = chosen.table, chosen.settings
        read = (*source.files, table.table, table.input_)
        consoles = begin(ctx, chosen.printing, chosen.outputs, read, settings.method)
        self.network = source.read(settings.sign_zero)
        self.view = _RelationView(consoles, chosen.outputs, self._stated)
        self.columns = TableColumns.plain(self.network.inputs)
        if table.table is not None:
            self.columns = TableColumns.read(table.table, self.network.inputs)

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
        import numpy as np

        from bnncert.model.formats.inputs import pick_point, read_array
        from bnncert.questions.relations.table_columns import TableColumns
        from bnncert.regions import Box

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
        """Ask, and print and write the answer."""
        settings = self.settings
        with settings.connected(self.view.consoles.watching.say) as options:
            asked = partial(ask, method=settings.method, options=options)
            self.view.ask(self.ctx, f"{self.model.name}, {title}", settings.timeout, asked)

    def _stated(self) -> dict[str, Any]:
        """State the network and how it is asked about for JSON."""
        return {
            **network_tree(self.network),
            "seed": self.settings.seed,
            "method": self.settings.method,
        }


def _columns(columns: TableColumns, text: str) -> list[int]:
    """Find the columns of a list of names or numbers, as in 3,4,5."""
    found = [columns.find(part.strip()) for part in text.split(",")]
    numbers = [f for f in found if isinstance(f, int)]
    if len(numbers) < len(found):
        raise InputError(f"{text!r}: expected features, not groups")
    return numbers


@dataclass(frozen=True, eq=False)
class _RelationView(AnswerView["RelationResult"]):
    """Prints whether a relation holds, and the pair of inputs that violates it."""

    def print_answer(self, found: RelationResult) -> None:
        """Print the parts with -v, the answer, and the pair of inputs."""
        from bnncert.questions.relations.relation_answer import MOST_SHARED

        console, verbose = self.consoles.details, self.consoles.verbose
        if verbose:
            parts = replace(found.table(), above="parts:", below=())
            console.say(str(parts))
        self.consoles.answer.say(found.heading)
        for line in found.pair_lines(len(found.names) if verbose else MOST_SHARED):
            console.say(f"  {line}")
        if found.pair is not None:
            replayed = " and ".join(found.pair.replayed_in)
            console.say(f"  both replayed in {replayed} arithmetic")
        for part in found.parts:
            if part.status in ("unknown", "timeout"):
                low, high = part.bound_texts()
                bounds = f"lower bound {low}, upper bound {high}"
                console.say(f"  open: {part.name}, {bounds}")
        console.notes(found.notes)

    def print_unfinished(self, found: RelationResult) -> str:
        """Print what is known, and return how many parts are proved."""
        self.print_answer(found)
        done = sum(part.status == "holds" for part in found.parts)
        return f"{done} of {found.count} parts are proved"

    def no_proof(self, found: RelationResult) -> str:
        """Point to the notes, which explain a verdict without a certificate."""
        return "there is no verdict" if found.status in ("unknown", "timeout") else "see the notes"
