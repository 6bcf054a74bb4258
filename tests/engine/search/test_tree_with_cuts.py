"""Searches whose nodes inherit an inequality of the input: exact answers and accepted proofs."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.engine.methods import reduced_sdp
from bnncert.kernel import check
from tests.brute_force import true_margins
from tests.engine.relaxations.reduced.test_coupling import any_case
from tests.kernel.claims import unpack
from tests.kernel.input_cuts import crossing


@given(data=st.data())
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
def test_the_minimum_is_the_true_one(data: st.DataObject) -> None:
    net, region = any_case(data)
    truth = true_margins(net, region, 0)
    with patch.object(reduced_sdp, "WORTH_CUTS", 1):
        result = bnncert.bound(
            net.build(), region, 0, method="bab", options=Options(processes=1), timeout=60
        )
    for target in result.targets:
        assert target.rival is not None
        assert target.lower <= truth[target.rival] <= target.upper


@pytest.mark.parametrize(("kind", "seed"), [("linf", 294), ("box", 149), ("l2", 149), ("l1", 149)])
def test_its_certificate_is_accepted(kind: str, seed: int, tmp_path: Path) -> None:
    net, region = crossing(seed, kind)
    network, path = net.build(), tmp_path / "one.cert"
    label = int(np.argmax(network.evaluate(region.center)))
    with patch.object(reduced_sdp, "WORTH_CUTS", 1):
        result = bnncert.verify(
            network, region, label, method="bab", options=Options(processes=1), certificate=path
        )
    assert result.status == "robust"
    assert check(path, network).verdict == "robust"
    assert "cuts" in [s.name for s in unpack(path)]
