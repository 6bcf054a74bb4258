"""The time limit of a check holds while its loops are compiled."""

from __future__ import annotations

import time

import pytest

from bnncert.kernel import RejectedError
from bnncert.kernel.budget import CompiledFunction, running
from bnncert.kernel.container import Budget


def test_a_check_does_not_wait_for_the_compiler() -> None:
    slow = CompiledFunction(lambda: time.sleep(20))
    started = time.monotonic()
    with running(Budget(0.1)), pytest.raises(RejectedError, match=r"did not end within 0\.1 s"):
        slow()
    assert time.monotonic() - started < 10


def test_a_compiled_function_is_called_in_place() -> None:
    calls = []
    twice = CompiledFunction(lambda x: calls.append(x) or 2 * x)
    with running(Budget(60)):
        assert [twice(3), twice(4)] == [6, 8]
    assert calls == [3, 4]


def test_an_error_of_the_first_call_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        CompiledFunction(lambda: 1 / 0)()
