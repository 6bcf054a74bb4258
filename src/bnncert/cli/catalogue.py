"""The names and summaries of all commands, and the layout of `--help`.

A command's module is imported when the command runs, so that `bnncert --help` and small commands
start fast.  The summaries are therefore stated here; they are the docstrings of the commands.

`--help` shows options by topic, commands by topic, and an example of each command.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand

from bnncert.cli.exit_codes import CODES


@dataclass(frozen=True)
class Entry:
    """A command: the function `name` of `bnncert.cli.<module>` (default: of its own name).

    `--help` lists it under its topic; `example` is a call of it that works as it is, after those
    of the commands before.
    """

    name: str
    summary: str
    topic: str = ""
    example: str = ""
    module: str = ""
    hidden: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        """The function that runs the command; its module is imported now."""
        module = importlib.import_module(f"bnncert.cli.{self.module or self.name}")
        function: Callable[..., Any] = getattr(module, self.name)
        return function


ASK, MANY, PROOFS, NETWORKS = "Ask", "Many questions", "Proofs", "Networks"
ABOUT = "About bnncert"

ENTRIES = (
    Entry(
        "verify",
        "Decide whether a property holds, with a counterexample if it does not.",
        ASK,
        "bnncert verify demo:sparse demo:0 --radius 0.25px --certificate proof.bnncert",
    ),
    Entry(
        "bound",
        "Bound the margin over each rival class by one method.",
        ASK,
        "bnncert bound demo:sparse demo:0 --radius 0.25px --method sdp",
    ),
    Entry(
        "radius",
        "Find the largest certified and the smallest falsified radius around a point.",
        ASK,
        "bnncert radius demo:sparse demo:0 --max 0.004",
    ),
    Entry(
        "explain",
        "Find inputs that suffice for the class of an image, and show that each is needed.",
        ASK,
        "bnncert explain demo:sparse demo:0 --radius 8px --timeout 5",
    ),
    Entry(
        "faults",
        "Find how many weight bits may flip, or thresholds be stuck, before the class can change.",
        ASK,
        "bnncert faults demo:sparse demo:1 --layer 2 --layer 3",
    ),
    Entry(
        "count",
        "Count the grid points of a region whose class changes, with certified bounds.",
        ASK,
        "bnncert count demo:sparse demo:0 --norm l0 --radius 2 --within 8px --grid 1px",
    ),
    Entry(
        "monotone",
        "Decide whether a class or score is monotone in a feature, with a pair of inputs if not.",
        ASK,
        "bnncert monotone demo:sparse --feature 95 --label 7 --step 1 --input demo:0 "
        "--radius 0.002",
        "relations",
    ),
    Entry(
        "fair",
        "Decide whether protected attributes can change the class, with a pair of inputs if so.",
        ASK,
        "bnncert fair demo:sparse --protect 406=-1,1 --input demo:0 --radius 0.002",
        "relations",
    ),
    Entry(
        "run",
        "Verify many points at many radii; the same command again continues an interrupted run.",
        MANY,
        "bnncert run demo:sparse --data demo --count 5 --radius 0.1px,0.25px --out results.sqlite",
    ),
    Entry(
        "experiment",
        "Run the experiments of a file; the same command again continues an interrupted run.",
        MANY,
        "bnncert experiment paper-linf-reduced --dry-run",
    ),
    Entry(
        "report",
        "Make a page of a results file that anyone can open, or tables for a paper.",
        MANY,
        "bnncert report results.sqlite -o report.html",
    ),
    Entry(
        "diff",
        "Show what changed between two results files; exit code 1 if they contradict each other.",
        MANY,
        "bnncert diff results.sqlite results.sqlite",
    ),
    Entry(
        "vnncomp",
        "Answer a category of VNN-COMP; the same command again continues an interrupted run.",
        MANY,
        "bnncert vnncomp instances.csv --out answers --timeout 60",
    ),
    Entry(
        "check",
        "Check a certificate in exact arithmetic: exit code 0 accepted, 1 rejected, 2 unreadable.",
        PROOFS,
        "bnncert check proof.bnncert --model demo:sparse",
    ),
    Entry(
        "info",
        "Print layers, sizes, sparsity and thresholds of a network.",
        NETWORKS,
        "bnncert info demo:sparse",
    ),
    Entry(
        "convert",
        "Convert a network file; the result is the same network, threshold by threshold.",
        NETWORKS,
        "bnncert convert demo:sparse network.onnx",
    ),
    Entry(
        "compare",
        "Compare two networks; exit code 1 if they differ.",
        NETWORKS,
        "bnncert compare demo:sparse network.onnx",
    ),
    Entry(
        "train",
        "Train a ternary or binary network; the same command again continues an interrupted run.",
        NETWORKS,
        "bnncert train --data mnist --hidden 500,500 --zeros 0.34 --out network.npz",
    ),
    Entry(
        "demo",
        "Verify the bundled MNIST network on its first images and show what was found.",
        ABOUT,
        "bnncert demo --count 3",
    ),
    Entry(
        "methods",
        "Print the methods, what they promise and what they need.",
        ABOUT,
        "bnncert methods",
        "supports",
    ),
    Entry(
        "supports",
        "Answer one question about the capabilities, as the VNN-LIB 2.0 standard asks it.",
        ABOUT,
        "bnncert supports --onnx-operators",
    ),
    # The scripts of VNN-COMP call these two.
    Entry(
        "vnncomp_instance",
        "Answer one instance as vnncomp/run_instance.sh has to.",
        module="vnncomp_instance",
        hidden=True,
    ),
    Entry(
        "vnncomp_prepare",
        "Find out whether one instance can be answered, as vnncomp/prepare_instance.sh has to.",
        module="vnncomp_instance",
        hidden=True,
    ),
)


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
