"""What `verify` prints and writes: the answer about a ball or a query, certificates, witnesses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.options import CounterexampleOutputs
from bnncert.cli.result_views import ResultView, explain_result
from bnncert.model.formats.atomic import write_atomically

if TYPE_CHECKING:
    from bnncert.engine.verdict import Result
    from bnncert.model.network import Network
    from bnncert.problem.vnnlib.query import Specification
    from bnncert.report.picture import CounterexampleFile


@dataclass(frozen=True)
class VerifyOutputs(CounterexampleOutputs):
    """The files that `verify` writes."""

    witness: Annotated[
        Path | None, typer.Option("--witness", help="Write the answer in VNN-COMP's result format.")
    ] = None

    @property
    def files(self) -> tuple[Path | None, ...]:
        """The files that are named."""
        return self.witness, *super().files


def replayable(networks: tuple[Network, ...], query: Specification, result: Result) -> Result:
    """Return the answer for a result file, whose readers compare it with the model's own outputs.

    If the executed model does not confirm the counterexample, the answer is unknown.
    """
    from bnncert.extras.vnncomp.executed import as_executed

    if result.counterexample is None:
        return result
    executed = as_executed(networks, query, result)
    return replace(result, status="unknown", counterexample=None) if executed is None else executed


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
