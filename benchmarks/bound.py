"""The default bound against the paper's, side by side in one run.

    python benchmarks/bound.py [--images 10] [--deltas 0.25,0.5,1.0] [--tight-seconds 300]
                               [--clarabel-seconds 300] [--networks sparse,dense] [--certified 30]

For every image (runner-up class, L-inf, delta = 127.5 eps): `sdp` with its own solver, the same
reduced problem by Clarabel, and the paper's `sdp-tight`, whose time-outs count as the limit.  Times
are whole calls, presolve and assembly included.  The input is not coupled (--coupling off), so
that both solvers work on the same problem.  `--tight-seconds 0` leaves sdp-tight out.  Where
it has run into the limit, the larger radii of that image, which are larger programs, count as
time-outs and are not run.
`--certified N` counts the images that LP, sdp-tight and sdp certify at delta 0.5.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import bnncert
from bnncert.demo import load_demo_images, load_demo_network

EIGHT_BITS = 127.5


def run(
    network: bnncert.Network,
    region: bnncert.Region,
    label: int,
    method: str,
    seconds: float | None,
    **options: object,
) -> tuple[bnncert.Result, float]:
    """Return a bound and the seconds it took."""
    started = time.monotonic()
    result = bnncert.bound(
        network,
        region,
        label,
        targets="runner-up",
        method=method,
        timeout=seconds,
        options=bnncert.Options(**options),  # type: ignore[arg-type]
    )
    return result, time.monotonic() - started


def geometric(values: list[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")


def memory() -> float:
    """Return the peak resident memory so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def compare(
    names: list[str], images: int, deltas: list[float], limit: float, same_limit: float
) -> None:
    """Print one line for each instance and the ratios."""
    data = load_demo_images()
    times: dict[str, list[float]] = {"sdp": [], "clarabel": [], "tight": []}
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
                same, same_seconds = run(
                    network,
                    region,
                    label,
                    "sdp",
                    same_limit,
                    solver="clarabel",
                    coupling="off",
                )
                rounds = details.get("rounds", [])
                line = (
                    f"{name:6s} {i:3d} {delta:5.2f} n1 {n1:3d}"
                    f" n2 {details['presolve'][1]['open']:3d}"
                    f" | sdp {ours.lower:8.1f} {seconds:6.2f} s"
                    f" {rounds[0]['iterations'] if rounds else 0:3d} it, {peak:4.2f} GB"
                    f" | clarabel {same.lower:8.1f} {same_seconds:7.2f} s"
                )
                times["sdp"].append(seconds)
                times["clarabel"].append(same_seconds)
                if n1 >= 30:
                    wide.append(same_seconds / seconds)
                if delta == 1.0:
                    slowest = max(slowest, seconds)
                rows.append(same_seconds / seconds)
                if limit > 0 and i in hopeless:
                    times["tight"].append(limit)
                    line += " | sdp-tight not run (time-out at a smaller radius)"
                elif limit > 0:
                    tight, tight_seconds = run(network, region, label, "sdp-tight", limit)
                    ended = tight_seconds < limit - 0.5
                    times["tight"].append(min(tight_seconds, limit) if ended else limit)
                    lower_than_tight += int(ours.lower < tight.lower)
                    compared += 1
                    if not ended:
                        hopeless.add(i)
                    line += f" | sdp-tight {tight.lower:8.1f} {tight_seconds:7.2f} s"
                    line += "" if ended else " (limit)"
                print(line, flush=True)
    print(f"geometric mean: sdp {geometric(times['sdp']):.3f} s")
    print(
        f"Clarabel on the same problem / sdp: {geometric(rows):.1f} (n1 >= 30: "
        f"{geometric(wide):.1f}, least {min(rows, default=float('nan')):.2f})"
    )
    if times["tight"]:
        ratio = geometric(times["tight"]) / geometric(times["sdp"])
        print(
            f"sdp-tight (limit {limit:g} s) / sdp: {ratio:.0f}; sdp lower than sdp-tight on "
            f"{lower_than_tight} of the {compared} instances where sdp-tight ran"
        )
    print(f"slowest sdp at delta 1.0: {slowest:.2f} s")


def certified(names: list[str], count: int, limit: float) -> None:
    """Print how many images each bound certifies at delta 0.5."""
    data = load_demo_images()
    methods = ["lp", "sdp"] + (["sdp-tight"] if limit > 0 else [])
    for name in names:
        network = load_demo_network(name)
        proved = dict.fromkeys(methods, 0)
        asked = 0
        for i in range(count):
            label, point = int(data.labels[i]), data.point(i)
            if int(np.argmax(network.evaluate(point))) != label:
                continue
            asked += 1
            region = bnncert.Ball("linf", point, 0.5 / EIGHT_BITS, -1.0, 1.0)
            for method in methods:
                seconds = limit if method == "sdp-tight" else None
                result = bnncert.verify(
                    network, region, label, targets="runner-up", method=method, timeout=seconds
                )
                proved[method] += int(result.status == "robust")
        text = ", ".join(f"{m} {n}" for m, n in proved.items())
        print(f"{name}: certified at delta 0.5, of {asked}: {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--deltas", default="0.25,0.5,1.0")
    parser.add_argument("--tight-seconds", type=float, default=300.0)
    parser.add_argument("--clarabel-seconds", type=float, default=300.0)
    parser.add_argument("--networks", default="sparse,dense")
    parser.add_argument("--certified", type=int, default=0)
    arguments = parser.parse_args()
    names = arguments.networks.split(",")
    if arguments.images:
        deltas = [float(d) for d in arguments.deltas.split(",")]
        compare(
            names,
            arguments.images,
            deltas,
            arguments.tight_seconds,
            arguments.clarabel_seconds,
        )
    if arguments.certified:
        certified(names, arguments.certified, arguments.tight_seconds)


if __name__ == "__main__":
    main()
