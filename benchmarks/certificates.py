"""Certificates of robust verdicts: how many, how large, and how long writing and checking takes.

    python benchmarks/certificates.py [--images 20] [--seconds 60] [--networks sparse,dense]
                                      [--norm linf] [--deltas 0.25,0.5] [--rivals runner-up]
                                      [--arithmetic real]

Every image is verified twice: without a certificate (the time that checking is compared with) and
with one.  Writing begins when the answer is announced, so that its share of solving is measured in
one run, in processor time.  The checker reads the file that was written.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import numpy as np

import bnncert
from bnncert.kernel import check
from bnncert.model.loading import load_demo_images, load_demo_network

SCALE = {"linf": 127.5, "l2": 255.0}


def geometric(values: list[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--networks", default="sparse,dense")
    parser.add_argument("--norm", choices=["linf", "l2"], default="linf")
    parser.add_argument("--deltas", default="0.25,0.5")
    parser.add_argument("--rivals", default="runner-up")
    parser.add_argument("--arithmetic", choices=["real", "float32"], default="real")
    arguments = parser.parse_args()
    data = load_demo_images()
    lines = []
    solving: list[float] = []
    checking: list[float] = []
    shares: list[float] = []
    tracing: list[float] = []
    written: list[float] = []
    path = os.path.join(tempfile.mkdtemp(), "proof.bnncert")
    for name in arguments.networks.split(","):
        network = load_demo_network(name)
        for delta in map(float, arguments.deltas.split(",")):
            robust, sizes, writing = 0, [], []
            for i in range(arguments.images):
                label, point = int(data.labels[i]), data.point(i)
                if int(np.argmax(network.evaluate(point))) != label:
                    continue
                radius = delta / SCALE[arguments.norm]
                region = bnncert.Ball(arguments.norm, point, radius, -1.0, 1.0)
                started = time.monotonic()
                plain = bnncert.verify(
                    network,
                    region,
                    label,
                    rivals=arguments.rivals,
                    timeout=arguments.seconds,
                    arithmetic=arguments.arithmetic,
                    options=bnncert.Options(processes=0),
                )
                seconds = time.monotonic() - started
                text = f"  {name} {delta:5.2f} image {i:2d} {plain.status:10s} {seconds:6.2f} s"
                if plain.status == "robust":
                    robust += 1
                    announced: list[float] = []
                    started, begun = time.monotonic(), time.process_time()
                    result = bnncert.verify(
                        network,
                        region,
                        label,
                        rivals=arguments.rivals,
                        timeout=4 * arguments.seconds,
                        arithmetic=arguments.arithmetic,
                        certificate=path,
                        announce=lambda result, at=announced: at.append(time.process_time()),
                        options=bnncert.Options(processes=0),
                    )
                    both, processor = time.monotonic() - started, time.process_time() - begun
                    if result.certificate is None:
                        text += f" | {both:6.2f} s with a certificate: none, {result.notes}"
                    else:
                        report = check(path, network)
                        sizes.append(os.path.getsize(path))
                        writing.append(both)
                        solving.append(seconds)
                        checking.append(report.seconds)
                        tracing.append(announced[0] - begun)
                        written.append(processor - tracing[-1])
                        shares.append(written[-1] / tracing[-1])
                        text += (
                            f" | {both:6.2f} s with a certificate, writing {shares[-1]:.2f} of "
                            f"solving | checked {report.seconds:5.2f} s"
                            f" | {sizes[-1]} bytes, {report.leaves} leaves"
                        )
                print(text, flush=True)
            lines.append(
                f"{name} {arguments.norm} {delta:5.2f} {arguments.arithmetic}: robust {robust}, "
                f"certified and checked {len(sizes)}; bytes: median "
                f"{int(np.median(sizes)) if sizes else 0}, largest {max(sizes, default=0)}"
            )
    print("\n".join(lines))
    ratio = geometric(checking) / geometric(solving)
    print(
        f"geometric means over {len(solving)}: solving {geometric(solving):.3f} s, checking "
        f"{geometric(checking):.3f} s, ratio {ratio:.2f}"
    )
    print(
        f"writing as a share of solving (processor time): {sum(written) / sum(tracing):.2f} of all "
        f"seconds, geometric mean {geometric(shares):.2f}"
    )


if __name__ == "__main__":
    main()
