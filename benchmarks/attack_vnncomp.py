"""Attack every instance of VNN-COMP 2023's traffic_signs_recognition and replay the witnesses.

    python benchmarks/attack_vnncomp.py [--data DIR] [--seconds 20]

DIR holds instances.csv, onnx/ and vnnlib/ (plain or gzipped).  Each model is loaded once; the
time of an instance is that of reading its query and deciding it.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

import bnncert

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data" / "vnncomp2023"


def existing(path: Path) -> Path:
    return path if path.exists() else path.with_name(path.name + ".gz")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", default="", help="part of the query's name")
    arguments = parser.parse_args()
    if not (arguments.data / "instances.csv").exists():
        print(f"{arguments.data}: no instances.csv; give --data", file=sys.stderr)
        return 2
    networks: dict[str, bnncert.Network] = {}
    found, times = 0, []
    with (arguments.data / "instances.csv").open(newline="") as file:
        rows = [row for row in csv.reader(file) if row and arguments.only in row[1]]
    for model, query, _ in rows:
        if model not in networks:
            started = time.monotonic()
            networks[model] = bnncert.load(existing(arguments.data / model))
            print(f"loaded {model} in {time.monotonic() - started:.1f} s", flush=True)
        started = time.monotonic()
        specification = bnncert.read_vnnlib(existing(arguments.data / query))
        result = bnncert.verify_specification(
            networks[model], specification, method="attack", timeout=arguments.seconds
        )
        elapsed = time.monotonic() - started
        replayed = "-"
        if result.counterexample is not None:
            found += 1
            times.append(elapsed)
            replayed = "+".join(result.counterexample.replayed_in)
        print(
            f"{Path(query).name:45s} {result.vnncomp_word:8s} {elapsed:7.2f} s  {replayed}"
            f"  lowest margin {result.upper:.6g}",
            flush=True,
        )
    mean = sum(times) / max(1, len(times))
    slowest = max(times, default=0.0)
    print(f"{found} of {len(rows)} falsified; mean {mean:.2f} s, slowest {slowest:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
