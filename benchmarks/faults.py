"""Faults that the bundled networks tolerate: `python -m benchmarks.faults [--images 5]`.

For each image the full table of scopes, once for the image alone and once for a ball, with the time
that the search took and how many rows are exact.
"""

from __future__ import annotations

import argparse
import time

import bnncert
from bnncert.model.loading import load_demo_images, load_demo_network

#: The rows that are printed, as `FaultsResult.row` names them.
SHOWN = (
    ("weights", "layer", 1),
    ("weights", "layer", 2),
    ("weights", "layer", "output"),
    ("weights", "anywhere", None),
    ("weights", "neuron", 1),
    ("thresholds", "layer", 1),
    ("thresholds", "layer", 2),
)


def main() -> None:
    """Print one line for each network, radius and image."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--radii", default="0,0.1", help="in pixel levels")
    chosen = parser.parse_args()
    images = load_demo_images()
    heads = (f"{kind[0]} {place} {layer or ''}".strip() for kind, place, layer in SHOWN)
    print("network  radius  image  exact  seconds  cpu  " + "  ".join(heads))
    for which in ("sparse", "dense"):
        network = load_demo_network(which)
        for radius in map(float, chosen.radii.split(",")):
            for index in range(chosen.images):
                point = images.point(index)
                label = int(network.classify(point)[0])
                ball = bnncert.Ball("linf", point, radius / 127.5, -1, 1)
                since = time.process_time()
                found = bnncert.faults(network, ball, label, timeout=chosen.timeout)
                used = time.process_time() - since
                exact = sum(row.is_exact for row in found.rows)
                cells = ("/".join(found.row(*row).texts[:2]) for row in SHOWN)
                print(
                    f"{which}  {radius:g} px  {index}  {exact}/{len(found.rows)}  "
                    f"{found.seconds:.1f}  {used:.1f}  " + "  ".join(cells),
                    flush=True,
                )


if __name__ == "__main__":
    main()
