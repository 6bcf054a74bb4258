"""The layout of `--help`: options by topic, commands by topic, and an example of each command."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from bnncert.cli.catalogue import ENTRIES, Entry

#: The options of all commands by topic, in the order in which `--help` shows them.
TOPICS: dict[str, tuple[str, ...]] = {
    "Input": (
        *(
            "--model",
            "--other",
            "--layers",
            "--network",
            "--input",
            "--index",
            "--data",
            "--first",
            "--count",
        ),
        *("--label", "--labels", "--scale", "--mean", "--std", "--data-dir", "--limit", "--only"),
        *("--table", "--feature", "--protect", "--one-hot"),
    ),
    "Region": (
        *(
            "--norm",
            "--radius",
            "--within",
            "--value",
            "--grid",
            "--clip",
            "--delta",
            "--max",
            "--tolerance",
        ),
        *("--exact", "--targets", "--ties", "--sign-zero", "--arithmetic", "--layer", "--most"),
        *("--step", "--score", "--decreasing"),
    ),
    "Method": (
        *("--method", "--coupling", "--solver", "--sparsity", "--form", "--samples", "--restarts"),
        *("--pixel-step", "--seed", "--confidence"),
    ),
    "Training": (
        *("--hidden", "--conv", "--stride", "--zeros", "--binarise-input", "--epochs", "--batch"),
        *("--lr", "--patience", "--robust"),
    ),
    "Limits": (
        *("--timeout", "--question-timeout", "--memory-limit", "--processes", "--workers"),
        *("--scheduler", "--started"),
    ),
    "Output": (
        *("--out", "--results", "--json", "--certificate", "--certificates", "--witness"),
        *("--checkpoint", "--save-counterexample", "--picture", "--resume", "--again", "--force"),
        *("--dry-run", "--csv", "--latex", "--details", "--title", "--explain", "--quiet"),
        *("--verbose", "--help"),
    ),
}

#: The topic of options that `TOPICS` does not name, such as those that ask a single question.
OTHER = "Options"


def topic_of(names: list[str]) -> str:
    """Return the topic of an option that has these names."""
    return next((t for t, known in TOPICS.items() if not set(known).isdisjoint(names)), OTHER)


class TopicCommand(TyperCommand):
    """A command whose help has a section for each topic; its epilog is an example."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options by topic in the order of `TOPICS`."""
        arguments: list[tuple[str, str]] = []
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in (OTHER, *TOPICS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
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
        """Write the example as it is, so that it can be copied."""
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
