"""Accuracy and certified accuracy of networks trained with and without `--robust`.

    python benchmarks/training.py --data mnist [--data-dir DIR] [--folder trained]
                                  [--strengths 0,1] [--zeros 0.34] [--epochs 40]
                                  [--images 50] [--deltas 0.5] [--seconds 10]

Each strength trains a network into the folder, unless it is there already (a stopped training goes
on); then the first test images are verified against all rivals, L-inf radius delta pixels.
Certified accuracy counts robust images among all of them, misclassified ones included.  Needs the
extra `train`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import bnncert
from bnncert.extras.training.datasets import load_dataset
from bnncert.extras.training.training_options import TrainingProgress


def trained(path: Path, data: str, **options: Any) -> bnncert.Network:
    """Return the network at `path`, after training it if it is not there."""
    if path.exists():
        return bnncert.load(path)
    started = time.monotonic()

    def report(now: TrainingProgress) -> None:
        if now.finished:
            print(f"{path.name}: epoch {now.epoch}, loss {now.loss:.4f}", flush=True)

    network = bnncert.train(data, out=path, progress=report, **options).network
    print(f"{path.name}: trained in {time.monotonic() - started:.0f} s", flush=True)
    return network


def open_neurons(network: bnncert.Network, points: np.ndarray, radius: float) -> float:
    """Return how many neurons of layer 1 may flip in the ball, on average."""
    weights = network.layers[0].weights.toarray().astype(np.float64)
    lo, hi = np.maximum(points - radius, -1.0), np.minimum(points + radius, 1.0)
    middle = (lo + hi) / 2 @ weights.T + network.layers[0].bias
    return float(np.mean(np.sum(np.abs(middle) <= (hi - lo) / 2 @ np.abs(weights).T, axis=1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--folder", type=Path, default=Path("trained"))
    parser.add_argument("--strengths", default="0,1")
    parser.add_argument("--train-delta", type=float, default=0.5)
    parser.add_argument("--zeros", type=float, default=0.34)
    parser.add_argument("--hidden", default="500,500")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--deltas", default="0.5")
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    data = load_dataset(arguments.data, arguments.data_dir)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    points = data.scaling.points(data.test.images)
    labels = data.test.labels
    step = data.scaling.pixel_step
    if step is None:
        parser.error("the data are not in pixels")
    hidden = tuple(int(n) for n in arguments.hidden.split(","))
    rows = []
    for strength in (float(s) for s in arguments.strengths.split(",")):
        name = f"zeros-{arguments.zeros:g}" + (f"-robust-{strength:g}" if strength else "")
        network = trained(
            arguments.folder / f"{name}.npz",
            arguments.data,
            data_dir=arguments.data_dir,
            hidden=hidden,
            zeros=arguments.zeros,
            epochs=arguments.epochs,
            robust=strength,
            radius=arguments.train_delta,
        )
        accuracy = float(np.mean(network.classify(points) == labels))
        for delta in (float(d) for d in arguments.deltas.split(",")):
            statuses, spent = [], []
            for i in range(arguments.images):
                ball = bnncert.Ball("linf", points[i], delta * step, -1.0, 1.0)
                started = time.monotonic()
                result = bnncert.verify(network, ball, int(labels[i]), timeout=arguments.seconds)
                spent.append(time.monotonic() - started)
                statuses.append(result.status)
            robust, failed = statuses.count("robust"), statuses.count("not_robust")
            opened = open_neurons(network, points[: arguments.images], delta * step)
            rows.append(
                f"| {strength:g} | {100 * accuracy:.2f} % | {delta:g} | {opened:.1f} | {robust} | "
                f"{failed} | {len(statuses) - robust - failed} | "
                f"{100 * robust / len(statuses):.0f} % | {np.mean(spent):.2f} |"
            )
            print(rows[-1], flush=True)
    print(
        f"\nzeros {arguments.zeros:g}, {arguments.epochs} epochs, first {arguments.images} test "
        f"images, all rivals, {arguments.seconds:g} s per image\n\n"
        "| --robust | test accuracy | delta | open neurons | robust | not robust | undecided | "
        "certified accuracy | mean s |\n|---|---|---|---|---|---|---|---|---|"
    )
    print("\n".join(rows))


if __name__ == "__main__":
    main()
