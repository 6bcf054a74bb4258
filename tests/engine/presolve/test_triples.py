"""Triples of signs: every one found is impossible."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import bnncert
from bnncert.engine.presolve.pipeline import presolve
from bnncert.engine.presolve.triples import SHAPES, _coefficients
from tests.engine.presolve.test_pipeline import reachable_patterns
from tests.strategies import few, regions, tiny_networks

SOME = few(30)


@given(data=st.data())
@SOME
def test_no_reachable_pattern_has_all_three(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["linf", "box", "l2"]))
    net = data.draw(tiny_networks(exact_ties=kind != "l2"))
    region = data.draw(regions(kind))
    built = net.build()
    presolved = presolve(built, region)
    found = presolved.triples
    own = presolved.owner[presolved.owner_layer == 0]
    wanted = 1 - 2 * (found.literals % 2)
    for pattern in reachable_patterns(net, region):
        first = np.asarray(pattern[0])[own[found.literals // 2]]
        assert not np.any(np.all(first == wanted, axis=1))


def test_a_triple_that_no_pair_explains_is_found() -> None:
    # x + y >= 1, -x + y >= 1 and y <= 1/2 exclude each other; any two are possible.
    weights = np.array([[1.0, 1.0], [-1.0, 1.0], [0.0, 1.0]])
    bias = np.array([-1.0, -1.0, -0.5])
    network = bnncert.Network.from_arrays(
        [weights, np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])], [bias, np.zeros(2)]
    )
    presolved = presolve(network, bnncert.Box([-2.0, -2.0], [2.0, 2.0]))
    assert [0, 2, 5] in presolved.triples.literals.tolist()
    assert presolved.record.counts()[0, "triple"] == presolved.triples.size
    row = presolved.triples.literals.tolist().index([0, 2, 5])
    theta = [Fraction(int(v)) for v in presolved.triples.theta[row]]
    signed = [theta[0] * weights[0], theta[1] * weights[1], -theta[2] * weights[2]]
    direction = [
        sum(Fraction(float(w[i]) if not isinstance(w[i], Fraction) else w[i]) for w in signed)
        for i in range(2)
    ]
    constant = theta[0] * -1 + theta[1] * -1 + theta[2] * Fraction(1, 2)
    assert sum(2 * abs(v) for v in direction) + constant < 0


def test_absolute_values_are_polynomials_on_ternary_points() -> None:
    for shape in SHAPES:
        terms = _coefficients(shape)
        for point in np.ndindex(3, 3, 3):
            x = np.array(point) - 1
            value = sum(c * np.prod(x.astype(float) ** e) for e, c in terms.items())
            assert value == abs(int(np.dot(shape, x)))
