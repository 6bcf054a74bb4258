"""A result as text on the terminal and as a tree for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bnncert.cli.answer_view import AnswerView
from bnncert.cli.output import network_tree
from bnncert.cli.time_limit import process_age

if TYPE_CHECKING:
    from bnncert.cli.consoles import Consoles
    from bnncert.cli.undecided import Asked
    from bnncert.engine.verdict import Counterexample, Result
    from bnncert.model.network import Network
    from bnncert.regions import InputSet


def question_tree(network: Network, region: InputSet | None, **settings: Any) -> dict[str, Any]:
    """Return the network, the region and the settings of a question for JSON."""
    stated = None if region is None else region.to_dict()
    return {**network_tree(network), "region": stated, **settings}


@dataclass(frozen=True, eq=False)
class ResultView(AnswerView["Result"]):
    """Prints the result of `bound`, and of `verify` for a ball."""

    asked: Asked
    explain: bool

    def print_answer(self, found: Result) -> None:
        """Print a table of the targets, the verdict, and why there is none or how it was found."""
        from rich.text import Text

        from bnncert.report.tables import result_table, status_text

        consoles = self.consoles
        consoles.details.print(result_table(found))
        consoles.answer.print(Text.assemble(status_text(found), _summary(found)), soft_wrap=True)
        consoles.details.notes(found.notes)
        explain_result(consoles, self.asked, found, explain=self.explain)

    def print_unfinished(self, found: Result) -> str:
        """Print the targets, and return how many of them are decided."""
        from bnncert.report.tables import result_table

        self.consoles.details.print(result_table(found))
        self.consoles.details.notes(found.notes)
        decided = sum(t.status in ("robust", "not_robust") for t in found.targets)
        return f"{decided} of {len(found.targets)} targets are decided"


def explain_result(consoles: Consoles, asked: Asked, result: Result, *, explain: bool) -> None:
    """Print why a question is undecided; with -v or `explain` more about any result."""
    from bnncert.cli.undecided import time_text, undecided_lines
    from bnncert.report.tables import explanation_tables

    lines = [] if consoles.quiet else undecided_lines(asked, result)
    for line in lines:
        consoles.details.print(line, soft_wrap=True)
    if consoles.verbose:
        consoles.details.notes(r for r in result.timing.remarks if r not in result.notes)
        if not lines and result.timing.work:
            consoles.details.print(f"time: {time_text(result)}", soft_wrap=True)
    if explain:
        for table in explanation_tables(result):
            consoles.answer.print(table)


def _summary(result: Result) -> str:
    """Say after the verdict how long it took, and the counterexample or the margin."""
    from bnncert.engine.answer import lower_text

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
    import numpy as np

    return bool(np.isfinite(result.lower)) and not (result.status == "robust" and result.lower <= 0)


def totals_text(results: Sequence[Result], seconds: float) -> str:
    """Count the answers about several inputs in one line."""
    words = ["misclassified" if r.is_misclassified else r.status for r in results]
    decided = {w: words.count(w) for w in ("robust", "not_robust", "misclassified")}
    return (
        f"{decided['robust']} robust, {decided['not_robust']} not robust, "
        f"{decided['misclassified']} misclassified, {len(words) - sum(decided.values())} undecided "
        f"of {len(words)} in {seconds:.1f} s"
    )


def replay_text(found: Counterexample) -> str:
    """Return the margin of a counterexample, the arithmetic that confirms it, and a tie."""
    from bnncert.report.tables import number

    arithmetic = f"replayed in {' and '.join(found.replayed_in)} arithmetic"
    tie = f"; {found.tie_text}" if found.tie else ""
    return f"margin {number(float(found.value))}, {arithmetic}{tie}"
