"""Explanations of the first bundled images: seconds, kept inputs, and how many of them are open.

    python -m benchmarks.explain [--images 10] [--networks sparse,dense] [--radius 8]
        [--seconds 60] [--question-seconds 10] [--check]

All inputs that are not kept are within `--radius` grey levels of the image.  `cpu s` is processor
time of this process.  With `--check` the certificate is written and checked as `bnncert check` does
it, which is not part of the seconds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import bnncert
from bnncert.kernel import check
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.questions.explain.explanation_answer import Explanation

HEADS = f"{'network':<9}{'image':>5}{'class':>6}{'kept':>6}{'open':>6}{'seconds':>9}{'cpu s':>8}"


def main() -> None:
    """Print one line for each image, and how many ended within the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--networks", default="sparse,dense")
    parser.add_argument("--radius", type=float, default=8.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--question-seconds", type=float, default=10.0)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    images = load_demo_images()
    print(HEADS, flush=True)
    for which in asked.networks.split(","):
        network = load_demo_network(which)
        ended = minimal = 0
        for number in range(asked.images):
            found = one(network, images.point(number), asked, f"{which:<9}{number:>5}")
            ended += found.seconds <= asked.seconds
            minimal += found.minimal
        limit = f"{asked.seconds:g} s"
        print(f"{which}: {ended} of {asked.images} ended within {limit}, {minimal} minimal")


def one(
    network: bnncert.Network, image: object, asked: argparse.Namespace, name: str
) -> Explanation:
    """Explain one image and print the line."""
    assert network.pixel_step is not None
    ball = bnncert.Ball("linf", image, asked.radius * network.pixel_step, -1, 1)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "explanation.bnncert"
        cpu = time.process_time()
        found = bnncert.explain(
            *(network, ball),
            timeout=asked.seconds,
            question_timeout=asked.question_seconds,
            certificate=path if asked.check else None,
        )
        cpu = time.process_time() - cpu
        checked = ""
        if asked.check and found.certificate is not None:
            checked = f"  accepted in {check(path, network).seconds:.1f} s"
    sizes = f"{found.label:>6}{len(found.kept):>6}{len(found.open):>6}"
    print(f"{name}{sizes}{found.seconds:>9.1f}{cpu:>8.1f}{checked}", flush=True)
    return found


if __name__ == "__main__":
    main()
