"""The names and summaries of all commands.

A command's module is imported when the command runs, so that `bnncert --help` and small commands
start fast.  The summaries are therefore stated here; they are the docstrings of the commands.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A command: the function `name` of `bnncert.commands.<module>` (default: of its own name)."""

    name: str
    summary: str
    module: str = ""
    hidden: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        """The function that runs the command; its module is imported now."""
        module = importlib.import_module(f"bnncert.commands.{self.module or self.name}")
        function: Callable[..., Any] = getattr(module, self.name)
        return function


ENTRIES = (
    Entry("verify", "Decide whether a property holds, with a counterexample if it does not."),
    Entry(
        "check",
        "Check a certificate in exact arithmetic: exit code 0 accepted, 1 rejected, 2 unreadable.",
    ),
    Entry("bound", "Bound the margin over each rival class by one method."),
    Entry("radius", "Find the largest certified and the smallest falsified radius around a point."),
    Entry(
        "run",
        "Verify many points at many radii; the same command again continues an interrupted run.",
    ),
    Entry(
        "experiment",
        "Run the experiments of a file; the same command again continues an interrupted run.",
    ),
    Entry("report", "Make a page of a results file that anyone can open, or tables for a paper."),
    Entry(
        "vnncomp",
        "Answer a category of VNN-COMP; the same command again continues an interrupted run.",
    ),
    Entry(
        "train",
        "Train a ternary or binary network; the same command again continues an interrupted run.",
    ),
    Entry("info", "Print layers, sizes, sparsity and thresholds of a network."),
    Entry("methods", "Print the methods, what they promise and what they need."),
    Entry(
        "convert", "Convert a network file; the result is the same network, threshold by threshold."
    ),
    Entry("demo", "Verify the bundled MNIST network on its first images and show what was found."),
    Entry(
        "supports",
        "Answer one question about the capabilities, as the VNN-LIB 2.0 standard asks it.",
    ),
    # The scripts of VNN-COMP call these two.
    Entry(
        "vnncomp_instance",
        "Answer one instance as vnncomp/run_instance.sh has to.",
        "vnncomp_instance",
        hidden=True,
    ),
    Entry(
        "vnncomp_prepare",
        "Find out whether one instance can be answered, as vnncomp/prepare_instance.sh has to.",
        "vnncomp_instance",
        hidden=True,
    ),
)
