"""The tables and the chart of `benchmarks.peers`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.deep_tables import Answer, as_markdown, certificates, geometric_mean

#: Seconds that `auto` may add to the best method before a ratio counts.
ALLOWED = 0.03

#: The method that the regret table compares with all others.
CHOSEN = "auto"

#: What stands around the table of a page.
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"


@dataclass(frozen=True)
class Row(Answer):
    """An answer with its place in its set, and the seconds of the verifier that was asked before.

    `run` is the method.
    """

    set: str = ""
    number: int = 0
    theirs: float | None = None
    remark: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What is asked once."""
        return self.group, self.name, self.run

    @property
    def taken(self) -> float:
        """Seconds of processor time, at least the limit where there is no answer."""
        return self.processor if self.decided else max(self.processor, self.limit)

    @property
    def half(self) -> str:
        """The half of its set to which it belongs."""
        return "odd" if self.number % 2 else "even"


HEADS = (
    "questions", "asked", "decided", "mean s", "geometric mean s", "slowest s", "certificates",
    "verifier", "decided", "contradictions", "mean s", "geometric mean s", "slowest s",
)  # fmt: skip

#: Who was asked before, by set, where seconds are those of each question in its file.
VERIFIERS = {
    **dict.fromkeys(("mnist-s-0.1", "mnist-s-0.3", "mnist-l-0.1", "cifar-s-2"), "EEV"),
    "marabou": "Marabou, 8 cores, 5000 s",
    **dict.fromkeys(
        ("mlp", "small03", "mlp-levels", "small03-levels"), "EEV, one core, 10 to 60 s"
    ),
}

#: The others without seconds of each question: decided, mean, geometric mean and slowest.
#: Exact: `benchmarks.deep --exact 600`.  VNN-COMP 2023: the report of the competition.
RECORDED = {
    "pb25": (("Exact, 600 s", "16", "130.5", "6.475", "602.25"),),
    "vnncomp": (
        ("alpha-beta-CROWN, 480 s", "42", "", "", ""),
        ("NeuralSAT, 480 s", "35", "", "", ""),
        ("Marabou, 480 s", "19", "", "", ""),
        ("PyRAT, 480 s", "8", "", "", ""),
    ),
}


def beside(rows: Sequence[Row], method: str) -> str:
    """Return our answers beside theirs, a line for each group of questions and verifier."""
    lines = []
    for group in dict.fromkeys(row.group for row in rows if row.run == method):
        mine = [row for row in rows if row.group == group and row.run == method]
        name = group if method == CHOSEN else f"{group}, {method}"
        own = [name, str(len(mine)), str(sum(r.decided for r in mine))]
        own += [*statistics(r.taken for r in mine), certificates(mine)[0]]
        known = [r for r in mine if r.known is not None]
        wrong = str(sum(r.wrong for r in known)) if known else ""
        theirs = statistics(r.theirs for r in mine if r.theirs is not None)
        each = (VERIFIERS.get(mine[0].set, ""), str(len(known) or ""), *theirs)
        for who, decided, *seconds in RECORDED.get(mine[0].set, (each,)):
            lines.append([*own, who, decided, wrong, *seconds])
            own = [""] * len(own)
    return as_markdown(HEADS, lines)


def statistics(seconds: Iterable[float]) -> list[str]:
    """Return mean, geometric mean and maximum; no geometric mean of whole seconds with a 0."""
    values = np.array(list(seconds))
    if not values.size:
        return ["", "", ""]
    middle = f"{geometric_mean(values):.3f}" if values.min() > 0 else ""
    return [f"{values.mean():.3f}", middle, f"{values.max():.2f}"]


REGRET = (
    "questions", "half", "asked", "decided by some method", "by auto", "best method s", "auto s",
    "ratio", "worst", "where",
)  # fmt: skip


def regret(rows: Sequence[Row]) -> str:
    """Return `auto` beside the best other method of each question, for both halves.

    Seconds are geometric means over the questions that some method decides; without an answer a
    method takes its limit.  A ratio is max(auto - 30 ms, best) / best, and that of several
    questions their geometric mean.
    """
    questions: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        questions.setdefault((row.group, row.name), []).append(row)
    lines = []
    for group in dict.fromkeys(group for group, _ in questions):
        for half in ("even", "odd"):
            asked = [q for (g, _), q in questions.items() if g == group and q[0].half == half]
            if asked:
                lines.append([group, half, *compared(asked)])
    return as_markdown(REGRET, lines)


def compared(asked: Sequence[Sequence[Row]]) -> list[str]:
    """Return the cells of the regret table for some questions, all answers of each together."""
    best, auto, names, by_auto = [], [], [], 0
    for answers in asked:
        chosen = [row for row in answers if row.run == CHOSEN]
        times = [row.processor for row in answers if row.run != CHOSEN and row.decided]
        if not chosen or not (times or chosen[0].decided):
            continue
        mine = chosen[0]
        by_auto += mine.decided
        auto.append(mine.taken)
        best.append(max(min(times, default=mine.taken), 1e-3))
        names.append(f"{mine.name}: {min(answers, key=lambda r: (not r.decided, r.processor)).run}")
    cells = [str(len(asked)), str(len(best)), str(by_auto)]
    if not best:
        return [*cells, "", "", "", "", ""]
    ratio = np.maximum(np.array(auto) - ALLOWED, best) / best
    worst = int(np.argmax(ratio))
    cells += [f"{geometric_mean(best):.3f}", f"{geometric_mean(auto):.3f}"]
    return [*cells, f"{geometric_mean(ratio):.2f}", f"{ratio[worst]:.2f}", names[worst]]


def write_page(page: Path, rows: Sequence[Row]) -> None:
    """Write the table of `auto` between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    parts = re.split(f"(?<={re.escape(BEGIN)}\n)(.*)(?={re.escape(END)})", text, flags=re.DOTALL)
    if len(parts) != 3:
        raise SystemExit(f"{page}: no lines {BEGIN} and {END}")
    page.write_text(parts[0] + beside(rows, CHOSEN) + "\n" + parts[2], encoding="utf-8")


#: The panels of the chart: title, sets, and whose seconds they are.
PANELS = (
    ("EEV's networks", ("mnist-s-0.1", "mnist-s-0.3", "mnist-l-0.1", "cifar-s-2"), "EEV"),
    ("networks of EEV's trainer", ("mlp", "small03"), "EEV, one core of the same kind"),
    ("Marabou's network", ("marabou",), "Marabou, 8 cores"),
)


def chart(file: Path, rows: Sequence[Row]) -> None:
    """Draw how many questions are solved within a time, ours and theirs."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [p for p in PANELS if any(r.set in p[1] and r.run == CHOSEN for r in rows)]
    if not shown:
        raise SystemExit(f"{file}: no answers to draw")
    figure, axes = plt.subplots(1, len(shown), figsize=(4 * len(shown), 3), squeeze=False)
    for axis, (title, sets, theirs) in zip(axes[0], shown, strict=True):
        mine = [row for row in rows if row.set in sets and row.run == CHOSEN]
        solved(axis, "bnncert", [r.processor for r in mine if r.decided])
        others = [r.theirs for r in mine if r.known is not None and r.theirs is not None]
        solved(axis, theirs, others)
        axis.set(xscale="log", xlabel="seconds", ylabel="solved", title=title)
        axis.axhline(len(mine), color="0.8", linewidth=0.8)
        axis.legend(loc="lower right", fontsize="small")
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)


def solved(axis, name: str, seconds: Sequence[float]) -> None:
    """Draw the number of questions that took at most so long; 0 is less than half a second."""
    times = np.sort(np.where(np.array(seconds) > 0, seconds, 0.5))
    axis.step(times, np.arange(1, times.size + 1), where="post", label=name)
