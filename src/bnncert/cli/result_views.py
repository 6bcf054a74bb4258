"""A result as text on the terminal and as a tree for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from bnncert.cli.consoles import Consoles
from bnncert.cli.progress import LiveLine
from bnncert.cli.time_limit import process_age
from bnncert.cli.undecided import Asked, time_text, undecided_lines
from bnncert.engine.answer import Interrupted
from bnncert.engine.rounded_bounds import lower_text
from bnncert.engine.verdict import Counterexample, Result
from bnncert.model.network import Network
from bnncert.regions import InputSet
from bnncert.report.tables import explanation_tables, number, result_table, status_text
from bnncert.version import __version__


def network_tree(network: Network) -> dict[str, Any]:
    """Return the description of the program and the network for JSON."""
    return {
        "bnncert": __version__,
        "model": network.source,
        "network_hash": network.content_hash,
        "sign_zero": network.sign_zero,
    }


def result_tree(
    network: Network, result: Result, region: InputSet | None, extra: dict[str, Any]
) -> dict[str, Any]:
    """Return a result and its question for JSON."""
    return {
        **network_tree(network),
        "region": None if region is None else region.to_dict(),
        **extra,
        **result.to_dict(),
    }


@contextmanager
def partial_result(console: Console, progress: LiveLine) -> Iterator[None]:
    """Show the result so far on Ctrl-C inside the block, and re-raise it."""
    try:
        yield
    except Interrupted as stop:
        result = stop.answer
        progress.open()
        with progress.paused():
            _show_partial(console, result)
        raise


def _show_partial(console: Console, result: Result) -> None:
    """Print the targets, and how many of them are decided."""
    console.print(result_table(result))
    for note in result.notes:
        console.print(f"note: {note}", soft_wrap=True)
    decided = sum(t.status in ("robust", "not_robust") for t in result.targets)
    console.print(
        f"interrupted after {result.seconds:.2f} s: {decided} of {len(result.targets)} "
        "targets are decided",
        soft_wrap=True,
    )


def show_result(consoles: Consoles, asked: Asked, result: Result, *, explain: bool = False) -> None:
    """Print a table of the targets, the verdict, and why there is none or how it was found."""
    consoles.details.print(result_table(result))
    consoles.answer.print(Text.assemble(status_text(result), _summary(result)), soft_wrap=True)
    for note in result.notes:
        consoles.details.print(f"note: {note}", soft_wrap=True)
    explain_result(consoles, asked, result, explain=explain)


def explain_result(consoles: Consoles, asked: Asked, result: Result, *, explain: bool) -> None:
    """Print why a question is undecided; with -v or `explain` more about any result."""
    lines = [] if consoles.quiet else undecided_lines(asked, result)
    for line in lines:
        consoles.details.print(line, soft_wrap=True)
    if consoles.verbose:
        for remark in result.timing.remarks:
            if remark not in result.notes:
                consoles.details.print(f"note: {remark}", soft_wrap=True)
        if not lines and result.timing.work:
            consoles.details.print(f"time: {time_text(result)}", soft_wrap=True)
    if explain:
        for table in explanation_tables(result):
            consoles.answer.print(table)


def _summary(result: Result) -> str:
    """Return the time, and the counterexample or the margin."""
    summary = f" in {result.seconds:.2f} s"
    if result.status == "timeout" and process_age():
        # The limit counts from the start of the process, and the seconds do not include start-up.
        before = max(0.0, process_age() - result.seconds)
        summary += f" after {before:.2f} s of start-up, which the limit includes"
    found = result.counterexample
    if found is not None:
        what = f"counterexample for {found.target}"
        if result.is_at_centre:
            what = f"the input itself is a counterexample for {found.target}"
        place = f" ({found.place})" if found.place and not result.is_at_centre else ""
        summary += f": {what}{place}, {replay_text(found)}"
    elif has_margin(result):
        summary += f", margin at least {lower_text(result.lower)}"
    return summary


def has_margin(result: Result) -> bool:
    """Whether the lower bound tells more than the answer robust does."""
    return bool(np.isfinite(result.lower)) and not (result.status == "robust" and result.lower <= 0)


def totals_text(results: Sequence[Result], seconds: float) -> str:
    """Return how many inputs have each answer."""
    words = ["misclassified" if r.is_misclassified else r.status for r in results]
    decided = {w: words.count(w) for w in ("robust", "not_robust", "misclassified")}
    return (
        f"{decided['robust']} robust, {decided['not_robust']} not robust, "
        f"{decided['misclassified']} misclassified, {len(words) - sum(decided.values())} undecided "
        f"of {len(words)} in {seconds:.1f} s"
    )


def replay_text(found: Counterexample) -> str:
    """Return the margin of a counterexample, the arithmetic that confirms it, and a tie."""
    arithmetic = f"replayed in {' and '.join(found.replayed_in)} arithmetic"
    tie = f"; {found.tie_text}" if found.tie else ""
    return f"margin {number(float(found.value))}, {arithmetic}{tie}"
