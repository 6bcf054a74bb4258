"""What `bound` and `verify` print and write: results as text, files, and a tree for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bnncert.cli.answer_view import AnswerView
from bnncert.cli.files import network_tree
from bnncert.cli.options import CounterexampleOutputs
from bnncert.cli.time_limit import process_age
from bnncert.model.formats.atomic import write_atomically

if TYPE_CHECKING:
    from bnncert.cli.consoles import Consoles
    from bnncert.cli.undecided import Asked
    from bnncert.engine.verdict import Counterexample, Result
    from bnncert.model.network import Network
    from bnncert.problem.vnnlib.query import Specification
    from bnncert.regions import InputSet
    from bnncert.report.picture import CounterexampleFile


@dataclass(frozen=True)
class VerifyOutputs(CounterexampleOutputs):
    """The files that `verify` writes."""

    witness: Annotated[Path | None, "Write the answer in VNN-COMP's result format."] = None

    @property
    def files(self) -> dict[str, Path]:
        """The files that are named, the witness first: messages are about the second of two."""
        return dict(sorted(super().files.items(), key=lambda file: file[0] != "--witness"))


def replayable(networks: tuple[Network, ...], query: Specification, result: Result) -> Result:
    """Return the answer for a result file, whose readers compare it with the model's own outputs.

    If the executed model does not confirm the counterexample, the answer is unknown.
    """
    from bnncert.extras.vnncomp.executed import as_executed

    if result.counterexample is None:
        return result
    executed = as_executed(networks, query, result)
    return replace(result, status="unknown", counterexample=None) if executed is None else executed


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
        consoles.answer.say(Text.assemble(status_text(found), _summary(found)))
        consoles.details.notes(found.notes)
        explain_result(consoles, self.asked, found, explain=self.explain)

    def print_unfinished(self, found: Result) -> str:
        """Print the targets, and return how many of them are decided."""
        from bnncert.report.tables import result_table

        self.consoles.details.print(result_table(found))
        self.consoles.details.notes(found.notes)
        decided = sum(t.status in ("robust", "not_robust") for t in found.targets)
        return f"{decided} of {len(found.targets)} targets are decided"


@dataclass(frozen=True, eq=False)
class VerifyView(ResultView):
    """Prints the word of VNN-COMP for a query, and the table of targets for a ball."""

    is_announced = True

    networks: tuple[Network, ...]
    query: Specification | None
    saved: CounterexampleFile | None

    def print_answer(self, found: Result) -> None:
        """Print the answer."""
        if self.query is None:
            super().print_answer(found)
            return
        self.consoles.answer.print(found.vnncomp_word)
        # The only line of a query on the standard output is its answer, unless more is asked for.
        console = self.consoles.details if self.explain else self.consoles.watching
        about = replace(self.consoles, details=console)
        explain_result(about, self.asked, found, explain=self.explain)

    def print_certificate(self, found: Result, *, is_interrupted: bool) -> None:
        """Print where the certificate is; a solver that a verdict relies on is the reason."""
        if found.trusted is None or found.certificate is not None:
            super().print_certificate(found, is_interrupted=is_interrupted)
            return
        self.consoles.details.notes(found.notes[-1:])
        self.consoles.details.print(f"not certified: the verdict rests on trust in {found.trusted}")

    def no_proof(self, found: Result) -> str:
        """Say that there is no verdict; only those have certificates."""
        return "there is no verdict"

    def written(self, found: Result, *, is_interrupted: bool) -> Iterator[str]:
        """Write the counterexample and VNN-COMP's result file."""
        assert isinstance(self.outputs, VerifyOutputs)
        if is_interrupted:
            return
        if self.saved is not None:
            yield self.saved.write(found.counterexample)
        if self.outputs.witness is not None:
            from bnncert.report.vnncomp_files import vnncomp_result

            if self.query is not None:
                found = replayable(self.networks, self.query, found)
            write_atomically(self.outputs.witness, vnncomp_result(found, self.query))


def explain_result(consoles: Consoles, asked: Asked, result: Result, *, explain: bool) -> None:
    """Print why a question is undecided; with -v or `explain` more about any result."""
    from bnncert.cli.undecided import time_text, undecided_lines
    from bnncert.report.tables import explanation_tables

    lines = [] if consoles.quiet else undecided_lines(asked, result)
    for line in lines:
        consoles.details.say(line)
    if consoles.verbose:
        consoles.details.notes(r for r in result.timing.remarks if r not in result.notes)
        if not lines and result.timing.work:
            consoles.details.say(f"time: {time_text(result)}")
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
