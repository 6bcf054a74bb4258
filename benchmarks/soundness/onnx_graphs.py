"""Random ONNX graphs with every form of every operator, in bnncert and in onnxruntime.

Of three graphs, the last is changed so that it means something else or nothing; it must be refused
or still agree.  An answer is a graph whose scores were compared at one point or more.
"""

from __future__ import annotations

from tests.model.formats.random_onnx.changes import change
from tests.model.formats.random_onnx.comparison import compare
from tests.model.formats.random_onnx.graphs import random_graph

from benchmarks.soundness.part import Outcome

NUMBER = 5000


def case(seed: int, number: int) -> Outcome:
    """Compare one graph."""
    part, turn = divmod(number, 3)
    if turn == 2:
        graph = random_graph(seed + 1_000_000, part)
        kind = f"changed, {change(graph, part)}"
    else:
        graph = random_graph(seed, 2 * part + turn)
        kind = "as generated"
    comparison = compare(graph)
    tally = {f"graphs {kind}: {comparison.outcome}": 1, "points": comparison.points}
    if turn != 2 and comparison.outcome == "agrees":
        tally |= dict.fromkeys(sorted(graph.forms), 1)
    wrong = comparison.outcome == "wrong"
    return Outcome(
        checked=int(wrong or comparison.outcome == "agrees"),
        tally=tally,
        wrong=(f"graph {kind}: {comparison.text}",) if wrong else (),
    )
