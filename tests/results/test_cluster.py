"""A real Dask scheduler with two worker processes, one of which is killed in the middle."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bnncert
from bnncert.errors import InputError, MissingExtraError
from bnncert.results import runner
from bnncert.results.configuration import read_configuration
from bnncert.results.instance import InstanceAnswer
from bnncert.results.plan import plan_experiment
from bnncert.results.runner import Place, run_plan
from bnncert.results.store import ResultsFile
from tests.results.conftest import Outcome
from tests.results.tiny import INSTANCES, content

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="needs the extra 'cluster'"
)

#: Loaded by the workers, so that a kill surely finds them at work.
PRELOAD = """
import time
import bnncert.results.instance as answering

def slowed(quick):
    def slow(*arguments):
        time.sleep(0.05)
        return quick(*arguments)
    return slow

# Once: a worker may load this twice.
if answering.answer.__name__ == "answer":
    answering.answer = slowed(answering.answer)
"""


@contextmanager
def dask(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a dask command on the loopback interface, on ports of the system's choice."""
    places = (Path(bnncert.__file__).parents[1], Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1", "--no-dashboard"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def address_in(path: Path, process: subprocess.Popen[bytes]) -> str:
    import json

    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, "the scheduler ended"
        if path.exists() and path.stat().st_size:
            try:
                return str(json.loads(path.read_text(encoding="utf-8"))["address"])
            except ValueError:
                # Half of it is written.
                pass
        time.sleep(0.05)
    raise AssertionError("no scheduler came up")


@needs_dask
def test_two_workers_one_killed(folder: Path) -> None:
    import distributed

    plan = plan_experiment(read_configuration(Path("tiny.json")))
    with ResultsFile("local.sqlite") as results:
        run_plan(plan, results, place=Place(workers=0))
    Path("slow.py").write_text(PRELOAD, encoding="utf-8")
    worker = ["worker", "--scheduler-file", "s.json", "--nthreads", "1", "--no-nanny"]
    worker += ["--preload", "slow.py"]
    with (
        dask(folder, "scheduler", "--scheduler-file", "s.json", "--port", "0") as scheduler,
        dask(folder, *worker, "--name", "first") as first,
        dask(folder, *worker, "--name", "second") as second,
    ):
        address = address_in(folder / "s.json", scheduler)
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=90)
        counted: list[int] = []

        def kill_in_the_middle(done: int, total: int, answer: InstanceAnswer | None) -> None:
            counted.append(done)
            if done == 8:
                first.kill()

        with ResultsFile("cluster.sqlite") as results:
            finished = run_plan(
                plan,
                results,
                place=Place(scheduler=address),
                progress=kill_in_the_middle,
            )
        assert first.wait() != 0
        assert second.poll() is None
    assert finished.failures == ()
    # Each instance was handed in once.
    assert counted == list(range(INSTANCES + 1))
    assert content(folder / "cluster.sqlite") == content(folder / "local.sqlite")


@needs_dask
def test_a_scheduler_that_is_not_there(folder: Path, experiment: Callable[..., Outcome]) -> None:
    answer = experiment("tiny.json", "--scheduler", "tcp://127.0.0.1:9")
    assert answer.code == 2
    assert answer.err.startswith("bnncert: --scheduler tcp://127.0.0.1:9: cannot be reached")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("address", ["foo", "tcp://foo", "foo:", "foo:99999", ":8786", "a b:1", ""])
def test_what_is_not_an_address_is_refused_before_anything_else(
    folder: Path, experiment: Callable[..., Outcome], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "answer_on_cluster", None)
    answer = experiment("tiny.json", "--scheduler", address)
    assert answer.code == 2
    assert answer.err.startswith(f"bnncert: --scheduler is '{address}'; expected HOST:PORT")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("address", ["foo:1", "tcp://10.0.0.1:8786", "tls://[::1]:8786", "a.b:9/"])
def test_addresses_as_schedulers_print_them(address: str) -> None:
    assert Place(scheduler=address).scheduler == address


def test_without_distributed_the_extra_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_experiment(read_configuration(Path("tiny.json")))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        ResultsFile("r.sqlite") as results,
        pytest.raises((MissingExtraError, InputError), match=r"pip install 'bnncert\[cluster\]'"),
    ):
        run_plan(plan, results, place=Place(scheduler="tcp://127.0.0.1:9"))
