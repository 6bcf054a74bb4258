"""The stages of `auto` that eliminate variables: which one a plan belongs to."""

from __future__ import annotations

from bnncert.engine.methods.auto import plan_kind
from bnncert.engine.search.elimination.elimination_plan import make_plan

CHAIN = [(v, v + 1) for v in range(20)]


def test_a_chain_is_local() -> None:
    assert plan_kind(make_plan(CHAIN, [], range(21))) == "local"


def test_a_table_of_all_variables_is_dense() -> None:
    assert plan_kind(make_plan([tuple(range(12)), *CHAIN[:11]], [], range(12))) == "dense"


def test_a_split_bucket_is_neither() -> None:
    plan = make_plan([(0, v) for v in range(1, 9)], [], range(9), 2)
    assert plan.split and plan_kind(plan) == "split"
