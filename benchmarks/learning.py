"""The search that learns beside other methods, on networks made with EEV's trainer.

    python -m benchmarks.learning [--data DIR] [--methods learning,auto,propagation]
        [--sets mlp:0.03:40:10,small03:0.2:40:30] [--images all|even|odd] [--certificates]

A set is network:radius:images:seconds.  The table has decided questions, processor seconds (mean
and largest) and conflicts a second; EEV's column is that of the questions it was asked, the even
images.  With certificates, each robust answer is written and checked, and asked again without one:
the difference is the time of the log and of writing.  Exit code 1: an answer
contradicts EEV's, or a certificate is refused.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bnncert
from benchmarks.peer_questions import rows_of, unit_images
from bnncert.engine.verdict import Result
from bnncert.kernel import RejectedError, check

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"

SETS = "mlp:0.03:40:10,mlp:0.05:8:10,small03:0.1:40:10,small03:0.2:40:30,small03:0.3:10:60"

DECIDED = ("robust", "not_robust")


def main() -> int:
    """Ask all questions and print one line for each set and method."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--methods", default="propagation,learning,auto")
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--images", choices=("all", "even", "odd"), default="all")
    parser.add_argument("--certificates", action="store_true")
    asked = parser.parse_args()
    folder = asked.data / "peers" / "eev-trained"
    points, labels = unit_images(asked.data, "mnist")
    theirs = {
        (r["net"], float(r["eps"]), int(r["image"])): r for r in rows_of(folder / "queries.csv")
    }
    step, first = (1, 0) if asked.images == "all" else (2, int(asked.images == "odd"))
    trouble = 0
    print("| set | method | decided | mean s | max s | conflicts/s | EEV decided | EEV mean s |")
    print("|---|---|---|---|---|---|---|---|")
    for text in asked.sets.split(","):
        name, radius, images, seconds = text.split(":")
        network = bnncert.load(folder / f"{name}_signs.npz")
        for method in asked.methods.split(","):
            used, statuses, sizes, checks, conflicts, known = [], [], [], [], 0, []
            alone, together = [], []
            for i in range(first, int(images), step):
                ball = bnncert.Ball("linf", points[i], float(radius), 0.0, 1.0)
                with tempfile.TemporaryDirectory() as place:
                    path = Path(place) / "answer.cert" if asked.certificates else None
                    since = time.process_time()
                    result = bnncert.verify(
                        network, ball, int(labels[i]), method=method, timeout=float(seconds),
                        ties="robust", certificate=path,
                    )  # fmt: skip
                    used.append(time.process_time() - since)
                    if path is not None and result.status == "robust":
                        since = time.process_time()
                        trouble += not accepted(path, network, f"{text} image {i}")
                        checks.append(time.process_time() - since)
                        sizes.append(path.stat().st_size if path.exists() else 0)
                        since = time.process_time()
                        bnncert.verify(
                            network, ball, int(labels[i]), method=method, timeout=float(seconds),
                            ties="robust",
                        )  # fmt: skip
                        alone.append(time.process_time() - since)
                        together.append(used[-1])
                statuses.append(result.status)
                conflicts += most_conflicts(result)
                row = theirs.get((name, float(radius), i))
                known += [row] if row is not None else []
                if row is not None and {row["eev"], result.status} == set(DECIDED):
                    print(f"{text} image {i}: {method} {result.status}, EEV {row['eev']}")
                    trouble += 1
            decided = sum(status in DECIDED for status in statuses)
            rate = f"{conflicts / sum(used):.0f}" if conflicts else "-"
            eev = "- | -"
            if known:
                own = [float(row["cpu_s"]) for row in known]
                done = sum(row["eev"] in DECIDED for row in known)
                eev = f"{done} of {len(known)} | {np.mean(own):.3f}"
            print(
                f"| {name} {radius}, {seconds} s | {method} | {decided} of {len(statuses)} | "
                f"{np.mean(used):.3f} | {max(used):.2f} | {rate} | {eev} |",
                flush=True,
            )
            if checks:
                print(
                    f"  certificates: {len(checks)}, mean {np.mean(sizes) / 1e3:.1f} kB, largest "
                    f"{max(sizes) / 1e3:.1f} kB, check mean {np.mean(checks):.3f} s, "
                    f"max {max(checks):.2f} s; all of them: solved in {sum(alone):.2f} s, written "
                    f"in {sum(together) - sum(alone):.2f} s more, checked in {sum(checks):.2f} s",
                    flush=True,
                )
    return int(trouble > 0)


def accepted(path: Path, network: bnncert.Network, name: str) -> bool:
    """Whether a certificate was written and the checker accepts it."""
    try:
        return path.exists() and check(path, network).verdict == "robust"
    except RejectedError as error:
        print(f"{name}: {error}")
        return False


def most_conflicts(result: Result) -> int:
    """Return the conflicts of the search, which all of its targets share."""
    return max((int(t.details.get("conflicts", 0)) for t in result.targets), default=0)


if __name__ == "__main__":
    sys.exit(main())
