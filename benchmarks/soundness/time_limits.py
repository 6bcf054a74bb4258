"""Hard queries with short limits through the real command line: how late an answer comes.

One case is one query with one limit, and nothing else runs beside it.  The clock is that of this
process, from before the command is started until it has ended; on a machine so busy that a command
which does nothing takes longer than the limit, lateness counts from there.  An answer is wrong if
it comes more than `OWN` seconds after the limit (`FOREIGN` where another solver does the work), if
there is none, or if there is a traceback.  The networks are random ones of the sizes that
verification is asked about, the bundled ones at radii that no method decides in the time, and large
ones: layers of up to 25,000 neurons, and thirty layers.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from tests.large_networks import write_local_network

import bnncert
from benchmarks.soundness.part import Outcome
from bnncert.model.loading import RandomNetwork

#: Wall time is what is measured, so nothing may run beside it.
WORKERS = 1

LIMITS = (2.0, 5.0, 10.0)

#: Seconds after the limit that are too late: for our own methods, and where a foreign solver works.
OWN, FOREIGN = 1.5, 2.5

#: The exit codes of an answer: yes, no, and undecided in the time.
ANSWERED = (0, 1, 3)

#: Seconds after the limit at which a command is ended.
PATIENCE = 60.0

DATA = Path(bnncert.__file__).parent / "data"

FOREIGN_METHODS = ("lp", "milp", "minp", "sdp-")


@dataclass(frozen=True)
class Query:
    """A question for the command line; `{limit}` and `{folder}` are filled in."""

    network: str
    arguments: tuple[str, ...]
    command: str = "verify"
    method: str = "auto"
    #: How many times the limit applies: once for each instance of `run` and `vnncomp`.
    instances: int = 1

    @property
    def is_foreign(self) -> bool:
        """Whether another solver does the work."""
        return self.method.startswith(FOREIGN_METHODS) or "scs" in self.arguments

    @property
    def text(self) -> str:
        """The question in one line."""
        return f"{self.command} {self.network} {self.method} {' '.join(self.arguments)}"


def _ball(radius: str, *more: str) -> tuple[str, ...]:
    return ("--index", "0", "--radius", radius, *more)


QUERIES = (
    Query("mnist_sparse", _ball("6px")),
    Query("mnist_sparse", _ball("1px")),
    Query("mnist_dense", _ball("2px")),
    Query("mnist_dense", _ball("20", "--norm", "l2")),
    Query("wide", _ball("0.05")),
    Query("deep", _ball("0.1")),
    Query("mnist_sparse", _ball("0.5px", "--certificate", "{folder}/proof.bnncert")),
    Query("mnist_sparse", _ball("6px"), method="bab"),
    Query("mnist_dense", _ball("1px"), method="bab"),
    Query("deep", _ball("0.1"), method="bab"),
    Query("mnist_sparse", _ball("2px"), method="sdp"),
    Query("mnist_dense", _ball("4px"), method="sdp"),
    Query("wide", _ball("0.1"), "bound", "sdp"),
    Query("mnist_sparse", _ball("2px"), "bound", "sdp"),
    Query("mnist_sparse", _ball("6px"), method="attack"),
    Query("mnist_dense", _ball("0.25px"), method="attack"),
    Query("mnist_dense", _ball("1px"), method="propagation"),
    Query("mnist_sparse", _ball("20", "--norm", "l2"), method="propagation"),
    Query("wide", _ball("0.5"), method="sample"),
    Query("mnist_sparse", _ball("6px"), method="lp"),
    Query("wide", _ball("0.5"), method="lp"),
    Query("mnist_sparse", _ball("6px"), method="milp"),
    Query("mnist_dense", _ball("1px", "--form", "soft"), "bound", "milp"),
    Query("wide", _ball("0.5"), method="milp"),
    Query("mnist_sparse", _ball("2px"), method="minp"),
    Query("mnist_dense", _ball("20", "--norm", "l2"), method="minp"),
    Query("wide", _ball("0.5"), "bound", "sdp-tight"),
    Query("mnist_sparse", _ball("2px"), "bound", "sdp-tight"),
    Query("mnist_dense", _ball("1px", "--solver", "scs"), "bound", "sdp-tight"),
    Query("mnist_dense", _ball("1px"), "bound", "sdp-standard"),
    Query("mnist_dense", _ball("4px"), "bound", "sdp-tight-plain"),
    Query("mnist_sparse", _ball("6px"), "bound", "sdp-tight-pairwise"),
    Query("mnist_sparse", _ball("0.25px"), "bound", "sdp-order2"),
    Query("mnist_dense", _ball("2px", "--sparsity", "chordal"), "bound", "sdp-tight"),
    Query("mnist_dense", ("--index", "0"), "radius"),
    Query("wide", ("--index", "0"), "radius"),
    Query("deep", ("--index", "0", "--norm", "l2"), "radius"),
    Query("mnist_sparse", ("--count", "2", "--radius", "2px"), "run", instances=2),
    Query("mnist_dense", ("--count", "2", "--radius", "1px"), "run", "milp", instances=2),
    Query("wide", ("--count", "1", "--radius", "0.05"), "run", "bab"),
    *(
        query
        for name in ("large-local", "large-spread", "large-deep")
        for query in (
            Query(name, _ball("0.0005")),
            Query(name, _ball("0.0185")),
            Query(name, _ball("0.02", "--norm", "l2")),
            Query(name, _ball("0.0005"), method="propagation"),
            Query(name, _ball("0.0005"), method="bab"),
            Query(name, ("--index", "0"), "radius"),
            Query(name, ("--index", "0"), "explain"),
            Query(name, ("--index", "0"), "faults"),
            Query(name, ("--count", "1", "--radius", "0.0005"), "run"),
        )
    ),
    Query("medium", (), "vnncomp"),
    Query("wide", (), "vnncomp"),
)

#: How many cases there are; a larger number would ask the same queries again.
NUMBER = MOST = len(QUERIES) * len(LIMITS)

RECIPES = {
    "medium": RandomNetwork((784, 200, 100, 10), zeros=0.5, seed=1),
    "wide": RandomNetwork((784, 500, 500, 10), zeros=0.3, seed=2),
    "deep": RandomNetwork((784, 300, 200, 150, 100, 10), zeros=0.5, seed=3),
}


#: Sizes of the large networks, how many inputs a neuron reads, and whether these are anywhere.
LARGE = {
    "large-local": ((3072, 25_000, 25_000, 25_000, 20_000, 25_000, 20_000, 10_000, 10), 27, False),
    "large-spread": ((784, 25_000, 25_000, 20_000, 25_000, 20_000, 15_000, 10_000, 10), 30, True),
    "large-deep": ((784, *[1000] * 30, 10), 50, True),
}


@cache
def files() -> Path:
    """Write the random networks and points once for this process; return the folder."""
    folder = Path(tempfile.mkdtemp(prefix="bnncert-limits-"))
    generator = np.random.default_rng(0)
    for name, recipe in RECIPES.items():
        network = recipe.build()
        network.save(folder / f"{name}.npz")
        points = generator.uniform(-1, 1, size=(2, network.inputs))
        np.save(folder / f"{name}-points.npy", points)
    for name, (sizes, reach, spread) in LARGE.items():
        write_local_network(folder / f"{name}.npz", sizes, reach, spread=spread)
        np.save(folder / f"{name}-points.npy", generator.uniform(-1, 1, size=(2, sizes[0])))
    return folder


def arguments(query: Query, limit: float, folder: Path) -> list[str]:
    """Return the command line of a query."""
    text = [part.format(folder=folder) for part in query.arguments]
    bundled = query.network.startswith("mnist")
    model = DATA / f"{query.network}.npz" if bundled else files() / f"{query.network}.npz"
    points = f"{DATA / 'mnist_test_100.npz'}:images"
    if not bundled:
        points = str(files() / f"{query.network}-points.npy")
    option = "--data" if query.command == "run" else "--input"
    if query.command == "vnncomp":
        return ["vnncomp", str(competition(query, limit, folder)), "--out", str(folder / "out")]
    out = ["--out", str(folder / "results.sqlite")] if query.command == "run" else []
    rest = ["--method", query.method, "--timeout", str(limit), *out]
    if query.command in ("explain", "faults"):
        rest = rest[2:]
    return [query.command, str(model), option, points, *text, *rest]


def competition(query: Query, limit: float, folder: Path) -> Path:
    """Write an instances.csv with one query; return its path."""
    network = RECIPES[query.network].build()
    network.save(folder / "model.onnx")
    point = np.load(files() / f"{query.network}-points.npy")[0]
    label = int(network.classify(point)[0])
    lines = [f"(declare-const X_{i} Real)" for i in range(network.inputs)]
    lines += [f"(declare-const Y_{i} Real)" for i in range(network.classes)]
    for i, value in enumerate(point.tolist()):
        lines.append(f"(assert (>= X_{i} {max(value - 0.05, -1.0):.9f}))")
        lines.append(f"(assert (<= X_{i} {min(value + 0.05, 1.0):.9f}))")
    rivals = [k for k in range(network.classes) if k != label]
    lines.append("(assert (or " + " ".join(f"(and (>= Y_{k} Y_{label}))" for k in rivals) + "))")
    (folder / "query.vnnlib").write_text("\n".join(lines), encoding="utf-8")
    path = folder / "instances.csv"
    path.write_text(f"model.onnx,query.vnnlib,{limit}\n", encoding="utf-8")
    return path


def case(seed: int, number: int) -> Outcome:
    """Ask one query with one limit."""
    pairs = list(itertools.product(LIMITS, QUERIES))
    limit, query = pairs[(number + seed) % len(pairs)]
    with tempfile.TemporaryDirectory(prefix="bnncert-limit-") as name:
        words = arguments(query, limit, Path(name))
        start = start_seconds()
        due = max(limit, start)
        if query.command in ("run", "vnncomp"):
            # Their limits are those of each instance: starting up and loading come before.
            loading = ask(["info", words[1]], 0.0)[0] if query.command == "run" else start
            due = loading + limit * query.instances
        excess, complaint = ask(words, due)
    kind = "foreign solvers" if query.is_foreign else "own methods"
    wrong = []
    if complaint:
        wrong.append(f"{query.text}, limit {limit:g} s: {complaint}")
    if excess > (FOREIGN if query.is_foreign else OWN):
        wrong.append(f"{query.text}, limit {limit:g} s: {excess:.2f} s late")
    return Outcome(
        1,
        {kind: 1, query.command: 1},
        tuple(wrong),
        {f"excess in seconds, {kind}": excess, "seconds of a command that does nothing": start},
    )


def start_seconds() -> float:
    """Return how long a command takes that does nothing."""
    return ask(["methods"], 0.0)[0]


def ask(words: list[str], limit: float) -> tuple[float, str]:
    """Run the command; return how many seconds it was late, and what is wrong with its output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "bnncert", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    try:
        out, _ = process.communicate(timeout=limit + PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return PATIENCE, "ended from outside, without an answer"
    excess = time.monotonic() - started - limit
    if "Traceback" in out:
        return excess, "traceback: " + " ".join(out.split())[-200:]
    if process.returncode not in ANSWERED:
        return excess, f"exit code {process.returncode}: {' '.join(out.split())[-200:]}"
    if not re.search(r"robust|timeout|unknown|radius|sat|margin|suffice|certified", out):
        return excess, f"no answer in {' '.join(out.split())[-200:]!r}"
    return excess, ""
