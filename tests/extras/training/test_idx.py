"""IDX files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.extras.training.datasets import load_dataset
from bnncert.extras.training.labelled_images import BYTES, read_idx
from tests.extras.training.image_data import IDX_NAMES, idx, one_line, write_idx


def test_a_folder_of_idx_files_is_read_by_its_path(tmp_path: Path) -> None:
    write_idx(tmp_path, packed=True)
    data = load_dataset(str(tmp_path))
    assert len(data.train.labels) == 20
    assert data.scaling == BYTES


@pytest.mark.parametrize(
    ("name", "change", "parts"),
    [
        (IDX_NAMES[0], lambda c: c[:-1], ("239 bytes", "240")),
        (IDX_NAMES[0], lambda c: c[:7], ("not an IDX file",)),
        (IDX_NAMES[0], lambda c: b"\0\0\x0d\x03" + c[4:], ("not an IDX file",)),
        (IDX_NAMES[1], lambda c: c + b"x", ("21 bytes", "20")),
        (IDX_NAMES[1], lambda c: c[:8] + b"\x0a" + c[9:], ("training label 0 is 10",)),
        (IDX_NAMES[3], lambda c: idx(np.zeros(9)), ("10 for 9 labels",)),
        (IDX_NAMES[2], lambda c: idx(np.zeros((10, 5, 5))), ("(1, 4, 3)", "(5, 5)")),
        (IDX_NAMES[2], lambda c: idx(np.zeros((0, 4, 3))), ("there are none",)),
    ],
)
def test_bad_idx_files(
    tmp_path: Path, name: str, change: Callable[[bytes], bytes], parts: tuple[str, ...]
) -> None:
    write_idx(tmp_path, packed=False)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(change(content))
    with pytest.raises(FormatError) as error:
        load_dataset(str(tmp_path))
    one_line(error, str(tmp_path), *(part.replace("(1, 4, 3)", "(4, 3)") for part in parts))


def test_truncated_gzip_and_missing_idx_file(tmp_path: Path) -> None:
    write_idx(tmp_path, packed=True)
    file = tmp_path / f"{IDX_NAMES[0]}.gz"
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    with pytest.raises(FormatError, match="gzip") as error:
        load_dataset(str(tmp_path))
    one_line(error, file.name)
    file.unlink()
    with pytest.raises(FormatError, match="missing") as error:
        load_dataset(str(tmp_path))
    one_line(error, IDX_NAMES[0])


def test_a_header_that_claims_too_much_is_no_reason_to_allocate(tmp_path: Path) -> None:
    file = tmp_path / IDX_NAMES[0]
    file.write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12 + b"abc")
    with pytest.raises(FormatError) as error:
        read_idx(file)
    one_line(error, file.name, "3 bytes")
