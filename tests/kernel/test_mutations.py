"""Whatever is changed in a certificate, what is accepted is true."""

from __future__ import annotations

import copy
import time
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.brute_force import reachable_first_layers, reachable_last_layers
from tests.kernel.arrangement import patterns
from tests.kernel.claims import Judge, accepted, is_true, pack
from tests.kernel.conftest import Valid
from tests.kernel.mutations import mutant
from tests.kernel.stated_regions import over_region
from tests.strategies import regions, tiny_networks

#: Mutants for each certificate, and seconds that one may take (on a slow, busy machine).
MUTANTS, SECONDS = 60, 5.0

#: Of these the oracle looks at every grid point, so that fewer mutants are made.
ON_GRIDS = ("grid", "l1 grid", "polytope grid", "l0 grid", "l0")

NAMES = (
    *("linf", "l2", "l1", "polytope", "deep", "one", "gates", "targets", "clauses", "point"),
    *ON_GRIDS,
    *("patterns", "budget", "enumerated patterns", "enumerated budget", "elimination"),
    *("input cuts", "input cuts l2", "refutation"),
)


@pytest.mark.parametrize("name", NAMES)
def test_an_accepted_mutant_is_true(valid: dict[str, Valid], name: str, tmp_path: Path) -> None:
    one, path = valid[name], tmp_path / "mutant.cert"
    rng = np.random.default_rng(len(name) + 17 * NAMES.index(name))
    outcomes: Counter[str] = Counter()
    mutants = MUTANTS // 3 if name in ON_GRIDS else MUTANTS
    others, judge = [v.sections for v in valid.values()], Judge(one.tiny)
    for _ in range(mutants):
        sections = mutant(rng, one.sections, others)
        pack(path, sections)
        started = time.process_time()
        report = accepted(path, one.network)
        assert time.process_time() - started < SECONDS
        outcomes["refused" if report is None else "accepted"] += 1
        if report is not None:
            assert judge.objection(report, sections[0]) is None
    assert outcomes["refused"] > mutants / 3
    assert outcomes["accepted"] > mutants / 40


@pytest.mark.parametrize("name", NAMES)
def test_another_network_is_rejected(valid: dict[str, Valid], name: str, tmp_path: Path) -> None:
    """Also where the statement is made to name it: then the proof itself has to fail or hold."""
    one, path = valid[name], tmp_path / "mutant.cert"
    rng = np.random.default_rng(5)
    for _ in range(6):
        weights = [w.copy() for w in one.tiny.weights]
        biases = [b.copy() for b in one.tiny.biases]
        k = int(rng.integers(len(weights)))
        if rng.integers(2):
            biases[k][rng.integers(biases[k].size)] += rng.choice([-2.0, -0.5, 0.5, 2.0])
        else:
            i, j = (int(rng.integers(n)) for n in weights[k].shape)
            weights[k][i, j] = rng.choice([v for v in (-1.0, 0.0, 1.0) if v != weights[k][i, j]])
        other = type(one.tiny)(tuple(weights), tuple(biases), one.tiny.sign_zero)
        network = other.build()
        sections = copy.deepcopy(one.sections)
        if network.content_hash != one.network.content_hash:
            assert accepted(pack(path, sections), network) is None
        sections[0].fields["network"] = network.content_hash
        if accepted(pack(path, sections), network) is not None:
            assert is_true(sections[0], other)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(["linf", "l1", "box", "polytope"]))
def test_patterns(data: st.DataObject, kind: str) -> None:
    tiny, region = data.draw(tiny_networks()), data.draw(regions(kind))
    assert set(patterns(tiny, region)) == set(reachable_first_layers(tiny, region))
    assert over_region(tiny, region) == reachable_last_layers(tiny, region)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(tiny_networks(max_depth=1), regions("l2"))
def test_patterns_of_a_disc(tiny, region) -> None:
    # The plain oracle ignores strictness on the circle itself.
    assert set(patterns(tiny, region)) <= set(reachable_first_layers(tiny, region))
