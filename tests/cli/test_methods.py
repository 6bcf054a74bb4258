"""`bnncert methods`: the table of the methods."""

from __future__ import annotations

from bnncert.engine.methods import REGISTRY
from tests.cli.diamond import Run


def test_methods_lists_every_method(run: Run) -> None:
    answer = run("methods")
    assert answer.code == 0
    first = [line.split(" ")[0] for line in answer.out.splitlines()]
    for method in REGISTRY.all():
        assert method.name in first
