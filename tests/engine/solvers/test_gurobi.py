"""Gurobi gives the answers of HiGHS and SCIP on models that its free licence allows."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert import Options
from bnncert.errors import InputError, MissingExtraError
from tests.brute_force import true_margins
from tests.strategies import NORMS, few, regions, tiny_networks

has_gurobi = importlib.util.find_spec("gurobipy") is not None
needs_gurobi = pytest.mark.skipif(not has_gurobi, reason="needs the extra 'gurobi'")
GUROBI = Options(solver="gurobi")


@needs_gurobi
@pytest.mark.parametrize("method", ["milp", "minp"])
@given(data=st.data())
@few(15)
def test_it_agrees_with_brute_force(method: str, data: st.DataObject) -> None:
    kinds = [*NORMS, "l2"] if method == "minp" else NORMS
    kind = data.draw(st.sampled_from(kinds))
    net = data.draw(tiny_networks(exact_ties=kind != "l2"))
    region = data.draw(regions(kind))
    truth = true_margins(net, region, 0)
    result = bnncert.bound(net.build(), region, 0, method=method, options=GUROBI)
    for target in result.targets:
        assert target.rival is not None
        assert target.lower == pytest.approx(float(truth[target.rival]), abs=1e-9)
        assert target.upper == pytest.approx(float(truth[target.rival]), abs=1e-9)


@pytest.mark.parametrize("method", ["milp", "minp"])
def test_a_solver_of_another_kind_is_refused(method: str) -> None:
    if method == "minp" and importlib.util.find_spec("pyscipopt") is None:
        pytest.skip("needs the extra 'scip'")
    network = bnncert.Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)])
    box = bnncert.Box(-np.ones(2), np.ones(2))
    with pytest.raises(InputError, match="clarabel"):
        bnncert.bound(network, box, 0, method=method, options=Options(solver="clarabel"))


@pytest.mark.skipif(has_gurobi, reason="gurobipy is installed")
def test_without_the_package_the_extra_is_named() -> None:
    network = bnncert.Network.from_arrays([np.eye(2), np.eye(2)], [np.zeros(2), np.zeros(2)])
    box = bnncert.Box(-np.ones(2), np.ones(2))
    with pytest.raises(MissingExtraError, match=r"bnncert\[gurobi\]"):
        bnncert.bound(network, box, 0, method="milp", options=GUROBI)
