"""Small files that unpack or grow to gigabytes are rejected in one line, in little memory."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.kernel import RejectedError, check, container
from bnncert.kernel.container import CONTENTS, Budget, Section
from tests.kernel import claim_bombs
from tests.kernel.claims import pack
from tests.kernel.conftest import Valid

resource = pytest.importorskip("resource")

#: MiB of address space that the checks may take beyond what the program takes by itself, and
#: seconds for all of them together.
MEMORY, SECONDS = 700, 60

CHECK = """
import resource, sys
from bnncert.cli.program import main

model, extra, *paths = sys.argv[1:]
sys.argv = ["bnncert", "check", paths[0], "--model", model]
try:
    main()
except SystemExit:
    pass
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
limit = used + int(extra) * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in paths[1:]:
    sys.argv[2] = path
    try:
        main()
    except SystemExit as end:
        print("code", end.code)
"""

Z = np.zeros(0, dtype="|i1")


@pytest.fixture(scope="module")
def network() -> bnncert.Network:
    """Many inputs and a wide last layer: a function of the scores has many weights."""
    rng = np.random.default_rng(0)
    weights = [rng.integers(-1, 2, (1500, 300)), rng.integers(-1, 2, (3, 1500))]
    return bnncert.Network.from_arrays(weights, [np.full(1500, 0.5), np.zeros(3)])


def statement(network: bnncert.Network, **fields: Any) -> Section:
    """Return a claim about the origin."""
    return claim_bombs.statement(network, 0.0, **fields)


def repeated(sign: int, count: int = 2**21 - 2**8) -> dict[str, Any]:
    """Return the arrays of a clause about neuron 0, again and again."""
    one = np.ones(count, dtype="|i1")
    return {"sizes_of_clauses": one, "neurons": 0 * one, "signs": sign * one, "theta": one}


def clauses_that_hold(network: bnncert.Network) -> list[Section]:
    """Neuron 0 is +1 at the origin, so the sign -1 is impossible."""
    arrays = repeated(-1)
    # Long clauses are proved sooner: all of the time is to go into what is kept.
    arrays["sizes_of_clauses"] = np.full(2**11 - 1, 2**10, dtype="<i4")
    arrays |= {k: arrays[k][: 2**10 * (2**11 - 1)] for k in ("neurons", "signs", "theta")}
    return [statement(network), *[Section("clauses", {"layer": 0}, arrays)] * 6]


def clauses_that_fail(network: bnncert.Network) -> list[Section]:
    return [statement(network), *[Section("clauses", {"layer": 0}, repeated(1))] * 6]


def clauses_of_trees(network: bnncert.Network) -> list[Section]:
    """Nodes that learn clauses after the last node."""
    arrays = dict.fromkeys(CONTENTS["nodes"][1], Z)
    arrays |= clauses_that_hold(network)[1].arrays
    arrays["since"] = np.full(arrays["sizes_of_clauses"].size, 99, dtype="|i1")
    target = Section("target", {"number": 0, "objective": 0})
    return [statement(network), target, *[Section("nodes", {}, arrays)] * 6]


def lemmas(network: bnncert.Network) -> list[Section]:
    """Clauses that are always true: once in numbers, which take long to follow, and long ones."""
    literals = np.tile(np.array([0, 1], dtype="|i1"), 2**21)
    short, long = (
        Section("lemmas", {}, {"sizes": np.full(2**22 // n, n, dtype="|i1"), "literals": literals})
        for n in (2, 64)
    )
    head = Section("refutation", {"targets": [0]})
    return [statement(network), head, short, *[long] * 7]


def inequalities(network: bnncert.Network) -> list[Section]:
    """Coefficients of every size, which become integers of many digits."""
    count = 2**22 // network.inputs
    first = statement(network, region="polytope", inequalities=count)
    first.arrays["matrix"] = np.tile([1e-100, 1e100], count * network.inputs // 2)
    first.arrays["right"] = np.ones(count)
    return [first]


def targets(network: bnncert.Network) -> list[Section]:
    """Functions of the scores in numbers, and each with long numbers."""
    one = {"scores": {"0": "1"}, "constant": "0", "tie_is_fine": True}
    return [statement(network, property={"kind": "targets", "targets": [[one]] * 16_000})]


def long_targets(network: bnncert.Network) -> list[Section]:
    one = {"scores": {"0": "1/" + "7" * 3900}, "constant": "0", "tie_is_fine": True}
    return [statement(network, property={"kind": "targets", "targets": [[one]] * 250})]


def points(network: bnncert.Network) -> list[Section]:
    """Coordinates without a common denominator."""
    exact = [str(Fraction(1, 10**1700 + 3 * k + 1)) for k in range(network.inputs)]
    first = statement(network, verdict="not_robust")
    first.arrays["hi"] = np.ones(network.inputs)
    point = Section("point", {"target": 0, "exact": exact}, {"point": np.zeros(network.inputs)})
    return [first, point]


BOMBS = {
    clauses_that_hold: "its clauses have more than 4194304 literals",
    clauses_that_fail: "a clause is not proved",
    clauses_of_trees: "its clauses have more than 4194304 literals",
    lemmas: "a refutation has more than 33554432 literals",
    inequalities: "the inequalities have more than 524288 coefficients",
    targets: "a target is not proved",
    long_targets: "a target is not proved",
    points: "the counterexample has too many digits",
}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_bomb_is_one_line_in_little_memory(network: bnncert.Network, tmp_path: Path) -> None:
    model = tmp_path / "net.npz"
    network.save(model)
    paths = [pack(tmp_path / "first.cert", [statement(network)])]
    for bomb in BOMBS:
        paths.append(pack(tmp_path / f"{bomb.__name__}.cert", bomb(network)))
        assert paths[-1].stat().st_size < 2**20
    answer = subprocess.run(
        [sys.executable, "-c", CHECK, model, str(MEMORY), *paths],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert answer.stderr == ""
    expected = [line for why in BOMBS.values() for line in (f"rejected: {why}", "code 1")]
    assert answer.stdout.splitlines() == ["rejected: a target is not proved", *expected]


def test_the_budget_is_for_all_sections_together(
    valid: dict[str, Valid], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = valid["clauses"]
    path = pack(tmp_path / "whole.cert", one.sections)
    budget = Budget()
    sections = list(container.read_sections(path, budget))
    unpacked = container.MOST_UNPACKED - budget.unpacked
    literals = sum(s.arrays["neurons"].size for s in sections if "neurons" in s.arrays)
    assert unpacked > max(sum(v.nbytes for v in s.arrays.values()) for s in sections)
    assert literals > 0
    for name, needed, why in (
        ("MOST_UNPACKED", unpacked, "unpack to more than"),
        ("MOST_LITERALS", literals, "literals"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(container, name, needed)
            assert check(path, one.network).targets > 0
            patch.setattr(container, name, needed - 1)
            with pytest.raises(RejectedError, match=why):
                check(path, one.network)


def test_names_in_messages_are_short_and_quoted(valid: dict[str, Valid], tmp_path: Path) -> None:
    """A message is one line, whatever a file calls its sections, fields and arrays."""
    one, name = valid["one"], "x\naccepted: \x1b[2K" + 10**5 * "y"
    for sections in (
        [Section(name)],
        [one.sections[0], Section(name)],
        [Section("statement", {**one.sections[0].fields, name: 1}, one.sections[0].arrays)],
        [Section("statement", one.sections[0].fields, {name: np.zeros(1)})],
        [Section("statement", {**one.sections[0].fields, "verdict": name})],
    ):
        with pytest.raises((RejectedError, container.UnreadableError)) as caught:
            check(pack(tmp_path / "name.cert", sections), one.network)
        assert len(str(caught.value)) < 200 and str(caught.value).isprintable()
