"""The tables of `benchmarks.deep`: answers as data, and their summary as text and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

DECIDED = ("robust", "not_robust")

#: What the runs are called in the tables.
OURS, BEFORE, EXACT = "", "before", "Exact"


@dataclass(frozen=True)
class Answer:
    """What one run said about a question.

    Attributes
    ----------
    run
        Whose answer it is: OURS, BEFORE or EXACT.
    seconds, processor, limit
        Seconds on the clock and of processor time, and the time limit.
    certificate
        What came of a certificate of a robust answer: "accepted", why there is none, or "" where
        none was asked for.
    solving, writing, checking
        Processor time of the run that wrote the certificate, and of its check.
    """

    run: str
    group: str
    name: str
    status: str
    seconds: float
    processor: float
    limit: float
    stage: str = ""
    nodes: int = 0
    patterns: int = 0
    known: str | None = None
    certificate: str = ""
    solving: float = 0.0
    writing: float = 0.0
    checking: float = 0.0

    @property
    def decided(self) -> bool:
        """Whether it is an answer at all."""
        return self.status in DECIDED

    @property
    def wrong(self) -> bool:
        """Whether the answer contradicts the known one, or a certificate was rejected."""
        contradicts = self.known is not None and self.decided and self.status != self.known
        return contradicts or self.certificate.startswith("rejected")

    def line(self) -> str:
        """Return the answer as one line of text."""
        run = f"{self.run}: " if self.run else ""
        text = f"  {run}{self.group:32s} {self.name:24s} {self.status:10s} {self.seconds:7.2f} s "
        text += f"{self.processor:7.2f} s of processor time  {self.stage:22s} {self.nodes} nodes"
        text += f" {self.patterns} patterns"
        if self.certificate:
            text += f"  certificate {self.certificate}"
        return text + ("  WRONG" if self.wrong else "")


HEADS = (
    "questions", "asked", "decided", "robust", "not robust", "wrong",
    "geometric mean s", "slowest s", "processor s", "certificates",
    "write / solve", "check / solve",
)  # fmt: skip


def summary(answers: Sequence[Answer]) -> list[list[str]]:
    """Return one row of cells for each group of questions and run."""
    rows = []
    for run, group in dict.fromkeys((a.run, a.group) for a in answers):
        mine = [a for a in answers if (a.run, a.group) == (run, group)]
        statuses = [a.status for a in mine]
        robust, broken = statuses.count("robust"), statuses.count("not_robust")
        name = group if run == OURS else f"{group}, {run}"
        cells = [name, *map(str, (len(mine), robust + broken, robust, broken))]
        cells += [str(sum(a.wrong for a in mine)), f"{geometric_mean(a.seconds for a in mine):.3f}"]
        cells += [f"{max(a.seconds for a in mine):.2f}", f"{sum(a.processor for a in mine):.1f}"]
        cells += certificates(mine)
        rows.append(cells)
    return rows


def certificates(answers: Sequence[Answer]) -> list[str]:
    """Return how many certificates were accepted, and their times as shares of solving."""
    asked = [a for a in answers if a.certificate]
    good = [a for a in asked if a.certificate == "accepted"]
    if not asked:
        return ["", "", ""]
    solving = max(sum(a.solving for a in good), 1e-9)
    shares = (sum(a.writing for a in good) / solving, sum(a.checking for a in good) / solving)
    return [f"{len(good)} of {len(asked)}", *(f"{s:.2f}" if good else "" for s in shares)]


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean, with a floor of a millisecond."""
    return float(np.exp(np.log(np.maximum(np.array(list(values)), 1e-3)).mean()))


def as_text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns."""
    table = [list(heads), *map(list, rows)]
    widths = [max(len(row[k]) for row in table) for k in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def as_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def remarks(answers: Sequence[Answer]) -> list[str]:
    """Return the comparisons that need two runs, and how late answers came."""
    ours = {(a.group, a.name): a for a in answers if a.run == OURS}
    out = []
    for run in (EXACT, BEFORE):
        others = [a for a in answers if a.run == run and (a.group, a.name) in ours]
        for group in dict.fromkeys(a.group.split()[0] for a in others):
            pairs = [(ours[a.group, a.name], a) for a in others if a.group.split()[0] == group]
            seconds = [geometric_mean(a.seconds for a in side) for side in zip(*pairs, strict=True)]
            spent = [geometric_mean(a.processor for a in side) for side in zip(*pairs, strict=True)]
            decided = [sum(a.decided for a in side) for side in zip(*pairs, strict=True)]
            out.append(
                f"{group}: {run} decides {decided[1]} of {len(pairs)}, this version {decided[0]}; "
                f"{run} / this version, geometric mean: {seconds[1] / seconds[0]:.3g} of the "
                f"seconds (at the limit where it has no answer), {spent[1] / spent[0]:.3g} of the "
                "processor time"
            )
    late = max((a.seconds - a.limit for a in answers if a.run == OURS), default=0.0)
    out.append(f"Latest answer after its limit: {max(late, 0.0):.2f} s.")
    without = (a for a in answers if a.certificate not in ("", "accepted"))
    return out + [f"{a.group}, {a.name}: certificate {a.certificate}" for a in without]
