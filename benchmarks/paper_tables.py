"""The paper's tables on the bundled networks, with the paper's numbers beside them.

    python benchmarks/paper_tables.py --table linf|l2|cifar [--network sparse|dense] [--images N]
                                      [--deltas D ...] [--methods M ...] [--seconds S]

As in the paper: the runner-up class only, misclassified images left out, delta_inf = 127.5 eps and
delta_2 = 255 eps on data in [-1, 1].  `--table cifar` needs --model and --data (an .npz with
x_test and y_test of 3072 values in 0..255).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import bnncert
from bnncert.demo import load_demo_images, load_demo_network

#: network, norm, delta: LP, tau_tighter and exact certified of 100 images, with mean seconds.
PAPER: dict[tuple[str, str, float], str] = {
    ("sparse", "linf", 0.25): "lp 83 (0.01 s), sdp-tight 91 (3.62 s), exact 3 | 95 (0.04 s)",
    ("sparse", "linf", 0.5): "lp 31 (0.02 s), sdp-tight 60 (6.69 s), exact 4 | 94 (1.21 s)",
    ("sparse", "linf", 1.0): "lp 1 (0.03 s), sdp-tight 21 (10.76 s), exact 15 | 50 (251.90 s)",
    ("sparse", "linf", 1.5): "lp 0 (0.06 s), sdp-tight 6 (38.32 s), exact 20 | 12 (428.24 s)",
    ("dense", "linf", 0.25): "lp 14 (0.03 s), sdp-tight 59 (11.97 s), exact 3 | 95 (2.23 s)",
    ("dense", "linf", 0.5): "lp 0 (0.05 s), sdp-tight 23 (42.37 s), exact 9 | 63 (220.53 s)",
    ("dense", "linf", 0.75): "lp 0 (0.08 s), sdp-tight 9 (139.18 s), exact 10 | 19 (455.61 s)",
    ("sparse", "l2", 10.0): "sdp-tight 70 (5.23 s), exact 3 | 93 (33.35 s)",
    ("sparse", "l2", 20.0): "sdp-tight 36 (19.54 s), exact 4 | 30 (447.11 s)",
    ("sparse", "l2", 30.0): "sdp-tight 13 (34.24 s), exact 4 | 6 (556.07 s)",
    ("dense", "l2", 5.0): "sdp-tight 81 (8.57 s), exact 2 | 96 (3.31 s)",
    ("dense", "l2", 10.0): "sdp-tight 46 (19.00 s), exact 3 | 58 (272.92 s)",
    ("dense", "l2", 15.0): "sdp-tight 27 (63.21 s), exact 4 | 23 (475.78 s)",
}


def _inputs(arguments: argparse.Namespace) -> tuple[bnncert.Network, Any, Any]:
    if arguments.table != "cifar":
        data = load_demo_images()
        points = data.pixels.astype(np.float64) / 127.5 - 1.0
        return load_demo_network(arguments.network), points, data.labels
    if arguments.model is None or arguments.data is None:
        raise SystemExit("--table cifar needs --model and --data")
    with np.load(arguments.data) as archive:
        points = archive["x_test"].astype(np.float64) / 127.5 - 1.0
        return bnncert.load(arguments.model), points, archive["y_test"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=["linf", "l2", "cifar"], default="linf")
    parser.add_argument("--network", choices=["sparse", "dense"], default="sparse")
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--deltas", type=float, nargs="+", default=None)
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--data", type=Path, default=None)
    arguments = parser.parse_args()
    network, points, labels = _inputs(arguments)
    norm = "l2" if arguments.table == "l2" else "linf"
    unit = 255.0 if norm == "l2" else 127.5
    deltas = arguments.deltas or {"linf": [0.25], "l2": [10.0], "cifar": [0.1]}[arguments.table]
    exact = "minp" if norm == "l2" else "milp"
    methods = arguments.methods or ["lp", "sdp-tight", exact]
    right = network.classify(points[: arguments.images]) == labels[: arguments.images]
    chosen = np.flatnonzero(right)
    print(f"{len(chosen)} of {arguments.images} images are classified correctly")
    for delta in deltas:
        print(f"delta {delta:g}, {norm}")
        for method in methods:
            robust = broken = 0
            seconds = []
            for i in chosen.tolist():
                region = bnncert.Ball(norm, points[i], delta / unit, -1.0, 1.0)  # type: ignore[arg-type]
                started = time.monotonic()
                result = bnncert.verify(
                    network,
                    region,
                    int(labels[i]),
                    targets="runner-up",
                    method=method,
                    timeout=arguments.seconds,
                    options=bnncert.Options(form="soft"),
                )
                seconds.append(time.monotonic() - started)
                robust += result.status == "robust"
                broken += result.status == "not_robust"
                print(
                    f"  {method:12s} image {i:3d}  {result.status:10s} bound {result.lower:9.2f}"
                    f"  {seconds[-1]:7.2f} s",
                    flush=True,
                )
            counts = f"{broken} | {robust}" if method == exact else str(robust)
            print(f"  {method}: certified {counts}, mean {np.mean(seconds):.2f} s")
        if (arguments.network, norm, delta) in PAPER and arguments.table != "cifar":
            print(f"  the paper, 100 images: {PAPER[(arguments.network, norm, delta)]}")


if __name__ == "__main__":
    main()
