"""All commands and options as a page, made from the command line when the pages are built."""

from __future__ import annotations

from typing import Any

import typer

from bnncert.cli.catalogue import ENTRIES, OTHER, TOPICS, Entry, topic_of
from bnncert.cli.program import _imported

#: The line of docs/commands.md that the reference replaces.
PLACE = "<!-- commands -->"


def reference() -> str:
    """Return a section of Markdown for each command, by topic."""
    parts: list[str] = []
    topics = list(dict.fromkeys(entry.topic for entry in ENTRIES if not entry.hidden))
    for topic in topics:
        parts.append(f"## {topic}\n")
        parts += [_section(e) for e in ENTRIES if e.topic == topic and not e.hidden]
    return "\n".join(parts)


def _section(entry: Entry) -> str:
    """Return the summary, the usage, an example and all options of a command."""
    name = entry.name.replace("_", "-")
    command = _imported(name)
    context = typer.Context(command, info_name=f"bnncert {name}")
    lines = [f"### bnncert {name}", "", entry.summary, "", "```"]
    lines += [command.get_usage(context).removeprefix("Usage: "), "```", ""]
    if entry.example:
        lines += ["For example:", "", "```", entry.example, "```", ""]
    tables: dict[str, list[tuple[str, str]]] = {t: [] for t in ("Arguments", OTHER, *TOPICS)}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            tables[_title(parameter)].append(record)
    for title, records in tables.items():
        if records:
            lines += [f"| {title} | |", "|---|---|"]
            lines += [f"| `{_cell(left)}` | {_cell(right)} |" for left, right in records]
            lines.append("")
    return "\n".join(lines)


def _title(parameter: Any) -> str:
    """Return the title of the table that has a parameter."""
    return "Arguments" if parameter.param_type_name == "argument" else topic_of(parameter.opts)


def _cell(text: str) -> str:
    """Return a text that can be in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("[default", "\\[default")
