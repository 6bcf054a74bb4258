"""How many instances `auto` decides, per radius, beside the paper and beside the Soft-MILP.

    python benchmarks/decided.py [--images 20] [--first 0] [--seconds 60] [--networks sparse,dense]
                                 [--norm linf] [--deltas 0.25,0.5,1.0] [--rivals runner-up,all]
                                 [--soft-images 0] [--processes 0]

delta_inf = 127.5 eps and delta_2 = 255 eps on data in [-1, 1].  Misclassified images are left out,
as in the paper.  With `--soft-images N` the paper's Soft-MILP (HiGHS) runs on the first N images
with the same limit; a time-out counts as the limit in the ratio of the geometric means.  Without
`--processes` all cores are used.  `--first 20 --images 40` asks about images 20 to 59.  With
`--method bab` the nodes are also shown for each second of processor time, children included, which
is how the speed of two versions compares on a busy machine (`auto` adds up nodes of several kinds).
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter

import numpy as np

import bnncert
from bnncert.engine.verdict import Result
from bnncert.model.loading import load_demo_images, load_demo_network

SCALE = {"linf": 127.5, "l2": 255.0}

#: The stages that decide a target, from cheap to expensive; the last one of an image is shown.
STAGES = ["centre", "interval", "attack", "propagation", "elimination", "lp", "sdp", "bab", "milp"]

#: Percent decided by the paper (12 cores, 600 s, Gurobi): network, norm, delta.
PAPER = {
    ("sparse", "linf", 0.25): 98,
    ("sparse", "linf", 0.5): 98,
    ("sparse", "linf", 1.0): 65,
    ("dense", "linf", 0.25): 98,
    ("dense", "linf", 0.5): 72,
    ("sparse", "l2", 10.0): 96,
    ("sparse", "l2", 20.0): 34,
}


#: Nodes from which on the time of an instance is mostly that of its nodes.
MANY_NODES = 50


def processor_seconds() -> float:
    """Return the processor time of this process and of those that have ended before it."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def decide(
    network: bnncert.Network,
    region: bnncert.Region,
    label: int,
    rivals: str,
    method: str,
    seconds: float,
    processes: int,
    **options: object,
) -> tuple[Result, float]:
    """Return the verdict and the seconds it took."""
    started = time.monotonic()
    result = bnncert.verify(
        network,
        region,
        label,
        rivals=rivals,  # type: ignore[arg-type]
        method=method,
        timeout=seconds,
        options=bnncert.Options(processes=processes, **options),  # type: ignore[arg-type]
    )
    return result, time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--networks", default="sparse,dense")
    parser.add_argument("--norm", choices=["linf", "l2"], default="linf")
    parser.add_argument("--deltas", default="0.25,0.5,1.0")
    parser.add_argument("--rivals", default="runner-up,all")
    parser.add_argument("--soft-images", type=int, default=0)
    parser.add_argument("--processes", type=int, default=0)
    arguments = parser.parse_args()
    data = load_demo_images()
    limit, processes = arguments.seconds, arguments.processes
    lines, ours, soft = [], [], []
    for name in arguments.networks.split(","):
        network = load_demo_network(name)
        for delta in map(float, arguments.deltas.split(",")):
            for rivals in arguments.rivals.split(","):
                counts: Counter[str] = Counter()
                stages: Counter[str] = Counter()
                slowest = 0.0
                worked, visited = 0.0, 0
                for i in range(arguments.first, arguments.first + arguments.images):
                    label, point = int(data.labels[i]), data.point(i)
                    if int(np.argmax(network.evaluate(point))) != label:
                        counts["misclassified"] += 1
                        continue
                    region = bnncert.Ball(
                        arguments.norm, point, delta / SCALE[arguments.norm], -1.0, 1.0
                    )
                    before = processor_seconds()
                    result, seconds = decide(
                        network, region, label, rivals, arguments.method, limit, processes
                    )
                    counts[result.status] += 1
                    slowest = max(slowest, seconds)
                    nodes = sum(t.details.get("nodes", 0) for t in result.targets)
                    if nodes >= MANY_NODES and arguments.method == "bab":
                        worked, visited = worked + processor_seconds() - before, visited + nodes
                    last = {t.stage for t in result.targets if t.status in ("robust", "not_robust")}
                    stage = max(last, key=STAGES.index) if last else "-"
                    stages[stage if result.status in ("robust", "not_robust") else "open"] += 1
                    text = f"  {name} {delta:5.2f} {rivals:9s} image {i:2d} {result.status:10s}"
                    text += f" {seconds:6.2f} s {stage:8s} nodes {nodes}"
                    if i < arguments.first + arguments.soft_images and rivals == "runner-up":
                        other, taken = decide(
                            network, region, label, rivals, "milp", limit, 0, form="soft"
                        )
                        done = other.status in ("robust", "not_robust")
                        if done or result.status in ("robust", "not_robust"):
                            ours.append(min(seconds, limit))
                            soft.append(taken if done else limit)
                        text += f" | Soft-MILP {other.status:10s} {taken:6.2f} s"
                    print(text, flush=True)
                decided = counts["robust"] + counts["not_robust"]
                asked = arguments.images - counts["misclassified"]
                paper = PAPER.get((name, arguments.norm, delta))
                lines.append(
                    f"{name:6s} {arguments.norm} {delta:5.2f} {rivals:9s}: decided {decided} of "
                    f"{asked} (robust {counts['robust']}, not robust {counts['not_robust']}), "
                    f"slowest {slowest:.1f} s, by {dict(stages)}"
                    + (f"; {visited / worked:.1f} nodes/s of processor time" if worked else "")
                    + (f"; the paper {paper} %" if paper is not None else "")
                )
    print("\n".join(lines))
    if ours:
        ratio = float(np.exp(np.mean(np.log(soft)) - np.mean(np.log(ours))))
        print(f"Soft-MILP / auto, geometric mean over {len(ours)} instances: {ratio:.1f}")


if __name__ == "__main__":
    main()
