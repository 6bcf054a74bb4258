"""Small trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnncert.extras.training.labelled_images import BYTES, Dataset, Scaling, Split
from bnncert.extras.training.training_options import TrainingOptions
from tests.extras.training.tiny import CLASSES, SIDE, blobs

torch: Any = pytest.importorskip("torch", reason="needs the extra 'train'")
from bnncert.extras.training.binary_model import TernaryNet  # noqa: E402
from bnncert.extras.training.fitting import fit  # noqa: E402

SHAPE = (1, SIDE, SIDE)


SMALL = TrainingOptions(hidden=(24, 16), zeros=0.34, epochs=4, batch=50)


CONV = TrainingOptions(hidden=(16,), conv=(4, 6), zeros=0.34, epochs=3, batch=50, robust=0.5)


STRIDED = TrainingOptions(hidden=(), conv=(6, 8), stride=2, zeros=0.34, epochs=3, batch=50)


def dataset(
    split: Split, scaling: Scaling = BYTES, input_shape: tuple[int, ...] = SHAPE
) -> Dataset:
    return Dataset(split, split, input_shape, CLASSES, scaling)


def train(
    options: TrainingOptions = SMALL,
    split: Split | None = None,
    *,
    checkpoint: Path | None = None,
    report: Any = None,
) -> TernaryNet:
    split = blobs(300, 1) if split is None else split
    return fit(dataset(split), options, checkpoint=checkpoint, report=report)
