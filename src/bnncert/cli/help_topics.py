"""The layout of `--help`: options by topic, commands by topic, and an example of each command."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from bnncert.cli.catalogue import ASK, ENTRIES, Entry
from bnncert.cli.exit_codes import CODES

#: The options of all commands by topic, in the order in which `--help` shows them.
TOPICS: dict[str, tuple[str, ...]] = {
    "Input": (
        *("--model", "--layers", "--network", "--input", "--index", "--data"),
        *("--count", "--label", "--labels", "--scale", "--normalise", "--only"),
        *("--table", "--feature", "--protect", "--one-hot"),
    ),
    "Region": (
        *("--norm", "--radius", "--within", "--value", "--grid", "--blocks", "--clip", "--max"),
        *("--tolerance", "--exact", "--rivals", "--ties", "--sign-zero", "--arithmetic"),
        *("--layer", "--step", "--score", "--decreasing"),
    ),
    "Method": (
        *("--method", "--coupling", "--solver", "--sparsity", "--form", "--samples"),
        *("--seed", "--confidence"),
    ),
    "Training": (
        *("--certify", "--hidden", "--conv", "--stride", "--zeros", "--epochs", "--batch"),
        *("--lr", "--patience", "--robust"),
    ),
    "Limits": (
        *("--timeout", "--question-timeout", "--memory-limit", "--processes", "--scheduler"),
    ),
    "Output": (
        *("--out", "--results", "--json", "--certificate", "--witness", "--checkpoint"),
        *("--save-counterexample", "--picture", "--thresholds", "--resume", "--force", "--dry-run"),
        *("--csv", "--latex", "--explain", "--quiet", "--verbose", "--help", "--help-all"),
    ),
}

#: Options for experts, which only `--help-all` shows.
EXPERT = frozenset(
    (
        *("--layers", "--within", "--value", "--normalise", "--sign-zero", "--arithmetic"),
        *("--seed", "--coupling", "--solver", "--sparsity", "--form", "--samples", "--confidence"),
        *("--question-timeout", "--memory-limit", "--processes", "--scheduler", "--witness"),
        *("--resume", "--patience", "--stride", "--checkpoint", "--tolerance", "--layer"),
    )
)

#: Where a context keeps whether the options for experts are shown.
_ALL = "bnncert.help_all"

#: The topic of options that `TOPICS` does not name, such as those that ask a single question.
OTHER = "Options"


def topic_of(names: list[str]) -> str:
    """Find the section of `--help` of an option by any of its names."""
    return next((t for t, known in TOPICS.items() if not set(known).isdisjoint(names)), OTHER)


def show_all(ctx: typer.Context, asked: bool) -> None:
    """Print the help with the options for experts, and exit."""
    if asked and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        print(ctx.get_help())
        raise typer.Exit


class TopicCommand(TyperCommand):
    """A command whose help has a section for each topic; its epilog is an example."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options by topic in the order of `TOPICS`."""
        arguments: list[tuple[str, str]] = []
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in (OTHER, *TOPICS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            expert = not EXPERT.isdisjoint(parameter.opts) and not ctx.meta.get(_ALL)
            if record is None or expert:
                continue
            if parameter.param_type_name == "argument":
                arguments.append(record)
            else:
                sections[topic_of(parameter.opts)].append(record)
        for name, rows in {"Arguments": arguments, **sections}.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write what exit codes mean, and the example as it is, so that it can be copied."""
        if any(entry.name == ctx.info_name and entry.topic == ASK for entry in ENTRIES):
            with formatter.section("Exit codes"):
                formatter.write_text(f"{CODES}.")
        if self.epilog:
            with formatter.section("Example"):
                formatter.write(f"{'':>{formatter.current_indent}}{self.epilog}\n")


def write_commands(formatter: Any) -> None:
    """Write the commands by topic."""
    sections: dict[str, list[Entry]] = {}
    for entry in ENTRIES:
        if not entry.hidden:
            sections.setdefault(entry.topic, []).append(entry)
    width = max(len(entry.name) for entry in ENTRIES if not entry.hidden)
    for name, entries in sections.items():
        with formatter.section(name):
            formatter.write_dl([(entry.name.ljust(width), entry.summary) for entry in entries])
