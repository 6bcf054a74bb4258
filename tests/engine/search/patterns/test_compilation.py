"""The compiled enumeration is prepared beside the search."""

from __future__ import annotations

import time
from threading import Event

import numpy as np
import pytest

import bnncert
from bnncert.deadline import Deadline
from bnncert.engine.search.patterns.enumeration import Compilation
from tests.engine.search.patterns.test_search import deep_network


def test_a_slow_compiler_is_not_waited_for() -> None:
    slow, released = Compilation(), Event()
    begun = time.monotonic()
    assert not slow.is_ready(lambda: released.wait(60) and None, Deadline(0.2))
    assert not slow.is_ready(lambda: None, Deadline(0.2))
    assert time.monotonic() - begun < 10
    released.set()
    assert slow.wait(10)
    assert slow.is_ready(lambda: None, Deadline(0.2))


def test_what_is_loaded_at_once_is_used_at_once() -> None:
    assert Compilation().is_ready(lambda: None, Deadline(None))


def test_a_compiler_that_fails_is_not_used() -> None:
    failing = Compilation()

    def fail() -> None:
        raise RuntimeError("no compiler")

    assert not failing.is_ready(fail, Deadline(0.1))
    assert not failing.is_ready(fail, Deadline(0.1))


def test_the_time_limit_holds_while_the_loop_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Compilation):
        def is_ready(self, call: object, limit: Deadline) -> bool:
            return False

    monkeypatch.setattr("bnncert.engine.search.patterns.enumeration.ENUMERATION", Endless())
    rng = np.random.default_rng(5)
    net = deep_network(rng, 14, (14, 12, 12), diagonal=True)
    center = rng.uniform(-0.3, 0.3, 14)
    label = int(net.classify(center)[0])
    ball = bnncert.Ball("linf", center, 0.5)
    waiting = bnncert.verify(net, ball, label, method="propagation", timeout=20)
    monkeypatch.undo()
    compiled = bnncert.verify(net, ball, label, method="propagation", timeout=20)
    assert waiting.status == compiled.status != "timeout"
