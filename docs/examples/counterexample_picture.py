"""Three images in a row, enlarged: docs/images/counterexample.png.

Run ``python docs/examples/counterexample_picture.py FILE.png``; it takes some seconds.  Image 38 of
the bundled ones is a 2, and a change of each pixel by at most one grey level makes it a 3 for one
bundled network.  For another, every change of each pixel by at most 25 leaves it a 2; the third
image is one of them.
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

#: The radius in pixels at which `demo:certified` keeps the class.
CERTIFIED = 25


def main() -> None:
    """Search for the counterexample and draw it beside the image, and noise beside both."""
    network, images = load_demo_network("sparse"), load_demo_images()
    point, px = images.point(IMAGE), network.pixel_step
    assert px is not None
    ball = bnncert.Ball("linf", point, px, -1.0, 1.0, grid=bnncert.Grid(px, -1.0))
    found = bnncert.verify(network, ball, LABEL, timeout=60).counterexample
    assert found is not None
    noise = CERTIFIED * px * np.random.default_rng(0).choice([-1, 1], point.size)
    far = np.clip(point + noise, -1.0, 1.0)
    ball = bnncert.Ball("linf", point, CERTIFIED * px, -1.0, 1.0)
    proved = bnncert.verify(load_demo_network("certified"), ball, LABEL, timeout=60)
    assert proved.status == "robust"
    parts = []
    for shown in (point, found.point, far):
        pixels = shades(shown.reshape(28, 28), -1.0, 1.0)
        parts += [np.kron(pixels, np.ones((SIDE, SIDE), dtype=np.uint8))]
        parts += [np.full((len(parts[0]), SIDE), 255, dtype=np.uint8)]
    Path(sys.argv[1]).write_bytes(png_bytes(np.hstack(parts[:-1])))
    wrong = network.classify(found.point).item()
    print(f"class {LABEL}, class {wrong}, and class {LABEL} in the whole ball: {sys.argv[1]}")


if __name__ == "__main__":
    main()
