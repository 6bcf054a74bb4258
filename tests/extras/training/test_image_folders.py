"""Folders of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.extras.training.datasets import load_dataset
from tests.extras.training.image_data import one_line


@pytest.mark.parametrize("parts", [False, True])
def test_folders_of_pictures(tmp_path: Path, parts: bool) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the extra 'images'")
    for part in ("train", "test") if parts else ("",):
        for label, name in enumerate(("cat", "dog")):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            (folder / "notes.txt").write_text("not a picture")
            for number in range(6):
                pixels = np.full((4, 5, 3), 40 * label + number, dtype=np.uint8)
                image.fromarray(pixels).save(folder / f"{number}.png")
    data = load_dataset(str(tmp_path))
    assert data.input_shape == (3, 4, 5)
    assert data.classes == 2
    assert len(data.train.labels) == (12 if parts else 10)
    assert len(data.test.labels) == (12 if parts else 2)
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.images[:, 0, 0, 0] // 40, split.labels)


def test_bad_folders(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs the extra 'images'")
    with pytest.raises(FormatError, match="no subfolders"):
        load_dataset(str(tmp_path))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(FormatError, match="no images"):
        load_dataset(str(tmp_path))
    for number, size in enumerate([(4, 4), (4, 4), (4, 5)]):
        image.new("L", size).save(tmp_path / "a" / f"{number}.png")
    with pytest.raises(FormatError) as error:
        load_dataset(str(tmp_path))
    one_line(error, "2.png", "(5, 4)", "(4, 4)")
    (tmp_path / "a" / "2.png").write_bytes(b"no picture")
    with pytest.raises(FormatError, match=r"2\.png"):
        load_dataset(str(tmp_path))
