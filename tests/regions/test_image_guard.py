"""Shapes of change beside brute force."""

from __future__ import annotations

from tests.guarded import never_wrong
from tests.regions.image_guard import shapes


def test_shapes_have_the_verdict_of_all_images() -> None:
    never_wrong(shapes, 300, occurs=["robust", "not_robust", "certificates"])
