"""The files of VNN-COMP: witnesses, the results.csv of a category, and its page.

A row of results.csv begins as in the competition: category, onnx, vnnlib, prepare time, result, run
time.  The other columns describe the answer and identify the question, so that it is not answered
twice.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from bnncert.engine.verdict import Counterexample, Result
from bnncert.errors import FormatError
from bnncert.model.formats.atomic import write_atomically
from bnncert.model.formats.file_content import DEFAULT_LIMITS, read_text
from bnncert.problem.vnnlib.query import DeclaredNetwork, Specification
from bnncert.report.page.charts import decided_chart
from bnncert.report.page.markup import simple_page, simple_table, without_equal
from bnncert.report.plain_table import plain_table


def number_text(value: float) -> str:
    """Return the shortest decimal that reads back as this number, in single and in double.

    A float32 number is written with the digits of a float64: fewer digits are enough for a reader
    in single precision, but are another number in double precision.
    """
    text = repr(float(value))
    # Numbers with an exponent are written out: not all readers of witnesses parse exponents.
    return np.format_float_positional(value, unique=True, trim="0") if "e" in text else text


def witness_text(counterexample: Counterexample) -> str:
    """Return ((X_0 v) .. (Y_0 v) ..), one pair a line."""
    lines = [f"(X_{i} {number_text(v)})" for i, v in enumerate(counterexample.point.tolist())]
    lines += [f"(Y_{j} {number_text(v)})" for j, v in enumerate(counterexample.scores.tolist())]
    return "(" + "\n".join(lines) + ")\n"


def assignment_text(counterexample: Counterexample, networks: Sequence[DeclaredNetwork]) -> str:
    """Return the assignment of VNN-LIB 2.0: ``X float32 [1,2]``, then a value a line, and so on."""
    points, scores = counterexample.point.tolist(), counterexample.scores.tolist()
    lines, inputs, outputs = [], 0, 0
    for network in networks:
        x, y = network.input, network.output
        parts = (
            (x, points[inputs : inputs + x.count]),
            (y, scores[outputs : outputs + y.count]),
        )
        for tensor, values in parts:
            is_whole = "int" in tensor.element_type
            lines.append(
                f"{tensor.name} {tensor.element_type} [{','.join(map(str, tensor.shape))}]"
            )
            lines += [str(int(v)) if is_whole else number_text(v) for v in values]
        inputs, outputs = inputs + x.count, outputs + y.count
    return "\n".join(lines) + "\n"


def vnncomp_result(result: Result, query: Specification | None = None) -> str:
    """Return a VNN-COMP result file: the answer, and the witness in the format of the query."""
    text = result.vnncomp_word + "\n"
    found = result.counterexample
    if found is None:
        return text
    if query is not None and query.networks:
        return text + assignment_text(found, query.networks)
    return text + witness_text(found)


def standard_result(result: Result, query: Specification) -> str:
    """Return what the command line of VNN-LIB 2.0 prints, which has another word for timeout."""
    return vnncomp_result(result, query).replace("timeout\n", "timed-out\n")


#: All answers with their colours.
WORDS = {"sat": "red", "unsat": "green", "unknown": "yellow", "timeout": "yellow", "error": "red"}

#: The answers that decide a query.
DECIDED = ("sat", "unsat")

#: The columns of results.csv.  There is no preparation step: reading the files is part of the run.
COLUMNS = (
    *("category", "onnx", "vnnlib", "prepare", "word", "seconds", "limit", "method", "stage"),
    *("certificate", "memory", "replayed", "file", "model_hash", "query_hash", "reason"),
)


@dataclass(frozen=True)
class Line:
    """One row of results.csv."""

    category: str
    onnx: str
    vnnlib: str
    limit: float
    method: str
    file: str
    model_hash: str
    query_hash: str
    word: str = ""
    seconds: float = 0.0
    stage: str = ""
    #: Bytes of the certificate, 0 if there is none, None if none was requested.
    certificate: int | None = None
    #: Peak memory in bytes of the largest process.
    memory: int = 0
    #: Where the witness was executed: "exact", "exact+onnxruntime", or "".
    replayed: str = ""
    reason: str = ""

    @property
    def question(self) -> tuple[str, str, float, str]:
        """The question: model, query, time limit and method."""
        return self.model_hash, self.query_hash, self.limit, self.method

    @property
    def query_name(self) -> str:
        """The query's file name without its suffixes."""
        return Path(self.vnnlib.removesuffix(".gz")).name.removesuffix(".vnnlib")

    def fields(self) -> list[str]:
        """Write the columns in the order of the competition's results.csv."""
        cells = vars(self) | {"prepare": "0.00", "seconds": f"{self.seconds:.3f}"}
        cells["certificate"] = "" if self.certificate is None else self.certificate
        return [str(cells[name]) for name in COLUMNS]

    @staticmethod
    def of(fields: Sequence[str], where: str) -> Line:
        """Return the content of a row; error messages name `where`."""
        try:
            cells: dict[str, Any] = dict(zip(COLUMNS, fields, strict=True))
            if cells["word"] not in WORDS:
                raise ValueError
            del cells["prepare"]
            cells["limit"], cells["seconds"] = float(cells["limit"]), float(cells["seconds"])
            cells["certificate"] = int(cells["certificate"]) if cells["certificate"] else None
            cells["memory"] = int(cells["memory"])
            return Line(**cells)
        except ValueError:
            raise FormatError(f"{where}: not a row that bnncert vnncomp has written") from None


class ResultsTable:
    """A results.csv; every change is written atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Read here, so that a file of another kind is reported before it is overwritten.
        self.lines()

    def lines(self) -> list[Line]:
        """Return all rows."""
        if not self._path.exists():
            return []
        text = read_text(self._path, DEFAULT_LIMITS.table, "table")
        reader = csv.reader(io.StringIO(text, newline=""))
        try:
            return [Line.of(r, f"{self._path}:{reader.line_num}") for r in reader if r]
        except csv.Error as error:
            raise FormatError(f"{self._path}: not a results.csv ({error})") from error

    def put(self, line: Line) -> None:
        """Add a row; it replaces the one with the same result file."""
        self._write([*(known for known in self.lines() if known.file != line.file), line])

    def drop(self, file: str) -> None:
        """Remove the row of a result file, if there is one."""
        lines = self.lines()
        kept = [line for line in lines if line.file != file]
        if len(kept) < len(lines):
            self._write(kept)

    def _write(self, lines: Sequence[Line]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(line.fields() for line in lines)
        write_atomically(self._path, text.getvalue())


def category_table(lines: Sequence[Line]) -> Table:
    """Return one row for each instance."""
    table = plain_table(
        *("query", "answer", "seconds", "decided by", "certificate", "GB", "reason"),
        left=("query", "answer", "decided by", "reason"),
        one_line=("query", "answer", "seconds", "certificate", "GB"),
    )
    table.columns[-1].overflow = "fold"
    for line in lines:
        # As Text, because names from files may look like rich's markup.
        table.add_row(
            Text(line.query_name),
            Text(line.word, style=WORDS[line.word]),
            f"{line.seconds:.2f}",
            Text(line.stage or "-"),
            f"{line.certificate} B" if line.certificate else "-",
            f"{line.memory / 1e9:.2f}" if line.memory else "-",
            Text(line.reason),
        )
    return table


def totals(lines: Sequence[Line]) -> str:
    """Return the number of each answer, and the total time."""
    words = [line.word for line in lines]
    counts = ", ".join(f"{words.count(word)} {word}" for word in WORDS)
    return f"{counts} of {len(lines)} in {math.fsum(line.seconds for line in lines):.1f} s"


def competition_page(lines: Sequence[Line], name: str) -> str:
    """Return the page of the file `name`: the answers of each category, then every instance."""
    categories = list(dict.fromkeys(line.category for line in lines))
    groups = [[line for line in lines if line.category == one] for one in categories]
    heads = ("category", "instances", *WORDS, "seconds", "slowest", "with certificate")
    counts = [
        (
            one,
            str(len(group)),
            *(str(sum(line.word == word for line in group)) for word in WORDS),
            f"{math.fsum(line.seconds for line in group):.1f}",
            f"{max(line.seconds for line in group):.2f}",
            str(sum(bool(line.certificate) for line in group)),
        )
        for one, group in zip(categories, groups, strict=True)
    ]
    body = f"<p class=first>{escape(_first_sentence(lines))}</p>"
    body += f"<p class=sub>{escape(totals(lines))} ({escape(name)})</p>"
    numbered = {one: number for number, one in enumerate(categories)}
    chart = decided_chart(
        "Instances decided within a time",
        {
            one: [line.seconds for line in group if line.word in DECIDED]
            for one, group in zip(categories, groups, strict=True)
        },
        {one: len(group) for one, group in zip(categories, groups, strict=True)},
        numbered,
        buttons=False,
    )
    body += f"<div class=charts>{chart.html}</div>"
    if chart.left_out:
        body += f"<p class=hint>{escape(chart.title)}: not drawn, {chart.left_out}.</p>"
    body += simple_table("Categories", heads, counts, numbers=heads[1:])
    for one, group in zip(categories, groups, strict=True):
        shown, rows, same = without_equal(_HEADS, [_cells(line) for line in group])
        body += simple_table(one, shown, rows, numbers=_NUMBERS, long=_LONG)
        body += f"<p class=hint>{escape(same)}</p>"
    heading = f"VNN-COMP: {', '.join(categories)}"
    return simple_page(heading, heading, body)


def _first_sentence(lines: Sequence[Line]) -> str:
    """Say in words how many queries have which answer."""
    words = [line.word for line in lines]
    sat, unsat = (words.count(word) for word in DECIDED)
    return (
        f"Of {len(lines)} {'query' if len(lines) == 1 else 'queries'}, {unsat} hold on the whole "
        f"region (unsat), {sat} have a counterexample (sat), and {len(lines) - sat - unsat} are "
        "undecided."
    )


#: The query stands first, because it names a row and differs from all others.
_HEADS = (
    *("query", "network", "answer", "seconds", "limit", "decided by", "replayed in"),
    *("certificate", "GB", "reason"),
)
_NUMBERS = ("seconds", "limit", "certificate", "GB")
_LONG = ("network", "decided by", "reason")


def _cells(line: Line) -> tuple[str, ...]:
    # Names without folders, because pages are shared with others.
    network = line.onnx.replace("\\", "/").rpartition("/")[2]
    return (
        *(line.query_name, network, line.word, f"{line.seconds:.2f}", f"{line.limit:g}"),
        *(line.stage or "-", line.replayed or "-"),
        f"{line.certificate} bytes" if line.certificate else "-",
        f"{line.memory / 1e9:.2f}" if line.memory else "-",
        line.reason,
    )
