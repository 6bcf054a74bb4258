"""Imported models against onnxruntime on random in-range inputs.

    python benchmarks/agreement.py MODEL.onnx[.gz] ... [--count 1000] [--lo 0] [--hi 255]

Inputs are random integers in [lo, hi], so that the first layer is exact in float32 too.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import bnncert
from bnncert.engine.replay import OnnxRuntime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--lo", type=int, default=0)
    parser.add_argument("--hi", type=int, default=255)
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    failures = 0
    for path in arguments.models:
        started = time.monotonic()
        network = bnncert.load(path)
        loaded = time.monotonic() - started
        runtime = OnnxRuntime.of(network)
        if runtime is None:
            print(f"{path.name}: onnxruntime cannot run it", file=sys.stderr)
            failures += 1
            continue
        wrong = 0
        for start in range(0, arguments.count, 50):
            count = min(50, arguments.count - start)
            shape = (count, network.inputs)
            batch = generator.integers(arguments.lo, arguments.hi + 1, shape).astype(np.float64)
            scores = network.evaluate(batch)
            for point, mine in zip(batch, scores, strict=True):
                theirs = runtime.scores(point)
                # Softmax saturates, so the class and the order of the best score are compared.
                wrong += int(theirs[int(np.argmax(mine))] < theirs.max())
        print(f"{path.name}: loaded in {loaded:.1f} s, {wrong} of {arguments.count} disagree")
        failures += wrong > 0
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
