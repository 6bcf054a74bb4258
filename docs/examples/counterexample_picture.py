"""An image and its counterexample as one picture, enlarged: docs/images/counterexample.png.

Run ``python docs/examples/counterexample_picture.py FILE.png``; it takes some seconds. Image 38 of
the bundled ones is a 2, and a change of each pixel by at most one grey level makes it a 3 for the
bundled network.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import bnncert
from bnncert.model.loading import load_demo_images, load_demo_network
from bnncert.regions.pictures import png_bytes, shades

#: The number of the image, its class, and the side of a pixel in the picture.
IMAGE, LABEL, SIDE = 38, 2, 8


def main() -> None:
    """Search for the counterexample and draw it beside the image."""
    network, images = load_demo_network("sparse"), load_demo_images()
    point, px = images.point(IMAGE), network.pixel_step
    assert px is not None
    ball = bnncert.Ball("linf", point, px, -1.0, 1.0, grid=bnncert.Grid(px, -1.0))
    found = bnncert.verify(network, ball, LABEL, timeout=60).counterexample
    assert found is not None
    both = [shades(p.reshape(28, 28), -1.0, 1.0) for p in (point, found.point)]
    large = [np.kron(p, np.ones((SIDE, SIDE), dtype=np.uint8)) for p in both]
    gap = np.full((large[0].shape[0], SIDE), 255, dtype=np.uint8)
    Path(sys.argv[1]).write_bytes(png_bytes(np.hstack([large[0], gap, large[1]])))
    print(f"class {LABEL}, and class {network.classify(found.point).item()}: {sys.argv[1]}")


if __name__ == "__main__":
    main()
