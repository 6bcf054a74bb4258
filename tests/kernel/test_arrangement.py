"""The fast oracle of these tests agrees with the plain one."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from tests.brute_force import reachable_first_layers, reachable_last_layers
from tests.kernel.arrangement import patterns
from tests.kernel.stated_regions import over_region
from tests.strategies import regions, tiny_networks


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(["linf", "l1", "box", "polytope"]))
def test_patterns(data: st.DataObject, kind: str) -> None:
    tiny, region = data.draw(tiny_networks()), data.draw(regions(kind))
    assert set(patterns(tiny, region)) == set(reachable_first_layers(tiny, region))
    assert over_region(tiny, region) == reachable_last_layers(tiny, region)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(tiny_networks(max_depth=1), regions("l2"))
def test_patterns_of_a_disc(tiny, region) -> None:
    # The plain oracle ignores strictness on the circle itself.
    assert set(patterns(tiny, region)) <= set(reachable_first_layers(tiny, region))
