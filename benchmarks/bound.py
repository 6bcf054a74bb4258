"""The default bound against the paper's, side by side in one run.

    python benchmarks/bound.py [--images 10] [--deltas 0.25,0.5,1.0] [--tight-seconds 300]
                               [--clarabel-seconds 300] [--networks sparse,dense]
                               [--certified 30] [--certified-seconds 60] [--store FILE]

For every image (runner-up class, L-inf, delta = 127.5 eps): `sdp` with its own solver, the same
reduced problem by Clarabel, and the paper's `sdp-tight`, whose time-outs count as the limit.  Times
are whole calls, presolve and assembly included.  The input is not coupled (--coupling off), so
that both solvers work on the same problem.  `--clarabel-seconds 0` and `--tight-seconds 0` leave
those two out.

`sdp-tight` runs in a process of its own, on one core, stopped at the limit, and is measured in
processor seconds: hours pass, and other work on the machine must not count against it.  Where it
has run into the limit, the larger radii of that image, which are larger programs, count as
time-outs and are not run.  `--store FILE` keeps its answers (a line of JSON each), so that an
interrupted run goes on where it stopped; `benchmarks/recorded/sdp_tight.jsonl` has those of the
run in docs/benchmarks.md.
`--certified N` counts the images that LP, sdp-tight and sdp certify at delta 0.5; images that the
table above has no answer of sdp-tight for get `--certified-seconds`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

import bnncert
from bnncert.engine.verdict import Result
from bnncert.model.loading import load_demo_images, load_demo_network

EIGHT_BITS = 127.5


def run(
    network: bnncert.Network,
    region: bnncert.Region,
    label: int,
    method: str,
    seconds: float | None,
    **options: object,
) -> tuple[Result, float]:
    """Return a bound and the seconds it took."""
    started = time.monotonic()
    result = bnncert.bound(
        network,
        region,
        label,
        rivals="runner-up",
        method=method,
        timeout=seconds,
        options=bnncert.Options(**options),  # type: ignore[arg-type]
    )
    return result, time.monotonic() - started


class Tight(NamedTuple):
    """What `sdp-tight` reached: a bound, processor seconds, and whether it ended by itself."""

    lower: float
    seconds: float
    ended: bool


def tight_child(
    pipe: Connection, name: str, image: int, delta: float, label: int, limit: float
) -> None:
    """Send the bound and the processor seconds of one `sdp-tight`."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 10, int(limit) + 10))
    network = load_demo_network(name)
    region = bnncert.Ball("linf", load_demo_images().point(image), delta / EIGHT_BITS, -1.0, 1.0)
    started = time.process_time()
    result, _ = run(network, region, label, "sdp-tight", None)
    pipe.send((result.lower, time.process_time() - started))


class TightRuns:
    """The paper's bound, one process for each, its answers kept in a file."""

    def __init__(self, limit: float, store: Path | None) -> None:
        self.limit, self.store = limit, store
        self.known: dict[tuple[str, int, float], Tight] = {}
        if store is not None and store.exists():
            for line in store.read_text().splitlines():
                name, image, delta, kept_limit, *rest = json.loads(line)
                if kept_limit == limit:
                    self.known[name, image, delta] = Tight(*rest)

    def get(self, name: str, image: int, delta: float, label: int) -> Tight:
        """Return the answer for one instance."""
        key = (name, image, delta)
        if key not in self.known:
            self.known[key] = self._run(name, image, delta, label)
            if self.store is not None:
                with self.store.open("a") as file:
                    file.write(json.dumps([*key, self.limit, *self.known[key]]) + "\n")
        return self.known[key]

    def _run(self, name: str, image: int, delta: float, label: int) -> Tight:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(
            target=tight_child, args=(theirs, name, image, delta, label, self.limit)
        )
        child.start()
        theirs.close()
        try:
            lower, seconds = ours.recv()
        except EOFError:  # the system ended it at its limit of processor seconds
            lower, seconds = -float("inf"), self.limit
        child.join()
        if seconds >= self.limit:
            return Tight(-float("inf"), self.limit, False)
        return Tight(lower, seconds, True)


def geometric(values: list[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")


def memory() -> float:
    """Return the peak resident memory so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def compare(
    names: list[str], images: int, deltas: list[float], runs: TightRuns, same_limit: float
) -> None:
    """Print one line for each instance and the ratios."""
    data, limit = load_demo_images(), runs.limit
    times: dict[str, list[float]] = {"sdp": [], "tight": []}
    wide: list[float] = []
    slowest, lower_than_tight, compared, rows = 0.0, 0, 0, []
    for name in names:
        network = load_demo_network(name)
        hopeless: set[int] = set()
        for delta in deltas:
            for i in range(images):
                label = int(data.labels[i])
                point = data.point(i)
                if int(np.argmax(network.evaluate(point))) != label:
                    print(f"{name:6s} {i:3d} {delta:5.2f}  misclassified", flush=True)
                    continue
                region = bnncert.Ball("linf", point, delta / EIGHT_BITS, -1.0, 1.0)
                ours, seconds = run(network, region, label, "sdp", None, coupling="off")
                details = ours.targets[0].details
                n1 = details["presolve"][0]["variables"]
                peak = memory()
                rounds = details.get("rounds", [])
                line = (
                    f"{name:6s} {i:3d} {delta:5.2f} n1 {n1:3d}"
                    f" n2 {details['presolve'][1]['open']:3d}"
                    f" | sdp {ours.lower:8.1f} {seconds:6.2f} s"
                    f" {rounds[0]['iterations'] if rounds else 0:3d} it, {peak:4.2f} GB"
                )
                times["sdp"].append(seconds)
                if delta == 1.0:
                    slowest = max(slowest, seconds)
                if same_limit > 0:
                    same, same_seconds = run(
                        network,
                        region,
                        label,
                        "sdp",
                        same_limit,
                        solver="clarabel",
                        coupling="off",
                    )
                    line += f" | clarabel {same.lower:8.1f} {same_seconds:7.2f} s"
                    rows.append(same_seconds / seconds)
                    if n1 >= 30:
                        wide.append(same_seconds / seconds)
                if limit > 0 and i in hopeless:
                    times["tight"].append(limit)
                    line += " | sdp-tight not run (time-out at a smaller radius)"
                elif limit > 0:
                    tight = runs.get(name, i, delta, label)
                    times["tight"].append(tight.seconds)
                    if tight.ended:
                        compared += 1
                        lower_than_tight += int(ours.lower < tight.lower)
                        line += f" | sdp-tight {tight.lower:8.1f} {tight.seconds:7.2f} s"
                    else:
                        hopeless.add(i)
                        line += f" | sdp-tight stopped at {limit:g} s"
                print(line, flush=True)
    print(f"geometric mean: sdp {geometric(times['sdp']):.3f} s")
    if rows:
        print(
            f"Clarabel on the same problem / sdp: {geometric(rows):.1f} (n1 >= 30: "
            f"{geometric(wide):.1f}, least {min(rows):.2f})"
        )
    if times["tight"]:
        ratio = geometric(times["tight"]) / geometric(times["sdp"])
        print(
            f"sdp-tight (limit {limit:g} s) / sdp: {ratio:.0f}; sdp lower than sdp-tight on "
            f"{lower_than_tight} of the {compared} instances where sdp-tight ended"
        )
    print(f"slowest sdp at delta 1.0: {slowest:.2f} s")


def certified(names: list[str], count: int, runs: TightRuns, short: TightRuns) -> None:
    """Print how many images each bound certifies at delta 0.5."""
    data = load_demo_images()
    for name in names:
        network = load_demo_network(name)
        proved = {"lp": 0, "sdp": 0, "sdp-tight": 0}
        asked = ended = 0
        for i in range(count):
            label, point = int(data.labels[i]), data.point(i)
            if int(np.argmax(network.evaluate(point))) != label:
                continue
            asked += 1
            region = bnncert.Ball("linf", point, 0.5 / EIGHT_BITS, -1.0, 1.0)
            for method in ("lp", "sdp"):
                result = bnncert.verify(network, region, label, rivals="runner-up", method=method)
                proved[method] += int(result.status == "robust")
            if runs.limit > 0:
                tight = runs.known.get((name, i, 0.5)) or short.get(name, i, 0.5, label)
                proved["sdp-tight"] += int(tight.lower > 0)
                ended += int(tight.ended)
        text = f"lp {proved['lp']}, sdp {proved['sdp']}"
        if runs.limit > 0:
            text += f", sdp-tight {proved['sdp-tight']} (ended within {short.limit:g} s: {ended})"
        print(f"{name}: certified at delta 0.5, of {asked}: {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--deltas", default="0.25,0.5,1.0")
    parser.add_argument("--tight-seconds", type=float, default=300.0)
    parser.add_argument("--clarabel-seconds", type=float, default=300.0)
    parser.add_argument("--networks", default="sparse,dense")
    parser.add_argument("--certified", type=int, default=0)
    parser.add_argument("--certified-seconds", type=float, default=60.0)
    parser.add_argument("--store", type=Path)
    arguments = parser.parse_args()
    names = arguments.networks.split(",")
    runs = TightRuns(arguments.tight_seconds, arguments.store)
    if arguments.images:
        deltas = [float(d) for d in arguments.deltas.split(",")]
        compare(
            names,
            arguments.images,
            deltas,
            runs,
            arguments.clarabel_seconds,
        )
    if arguments.certified:
        short = TightRuns(arguments.certified_seconds, arguments.store)
        certified(names, arguments.certified, runs, short)


if __name__ == "__main__":
    main()
