"""The forms of CIFAR-10."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.extras.training.datasets import load_dataset
from tests.extras.training.image_data import cifar_batches, colours, one_line


@pytest.mark.parametrize("kind", ["bin", "2", "3", "4", "5"])
@pytest.mark.parametrize("packed", [False, True])
def test_cifar_in_its_forms(tmp_path: Path, kind: str, packed: bool) -> None:
    batches = cifar_batches(kind)
    folder = "cifar-10-batches-bin" if kind == "bin" else "cifar-10-batches-py"
    if packed:
        name = "cifar-10-binary.tar.gz" if kind == "bin" else "cifar-10-python.tar.gz"
        with tarfile.open(tmp_path / name, "w:gz") as archive:
            for member, content in {**batches, "readme.html": b"<p>"}.items():
                info = tarfile.TarInfo(f"{folder}/{member}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    else:
        (tmp_path / folder).mkdir()
        for member, content in batches.items():
            (tmp_path / folder / member).write_bytes(content)
    data = load_dataset("cifar10", tmp_path, remote={"cifar10": ()})
    wanted = [colours(4, seed) for seed in range(3)]
    assert data.input_shape == (3, 32, 32)
    np.testing.assert_array_equal(
        data.train.images.reshape(8, -1), np.vstack([wanted[0][0], wanted[1][0]])
    )
    np.testing.assert_array_equal(data.train.labels, np.hstack([wanted[0][1], wanted[1][1]]))
    np.testing.assert_array_equal(data.test.labels, wanted[2][1])


def test_bad_cifar_files(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name, content in cifar_batches("bin").items():
        (folder / name).write_bytes(content)
    (folder / "data_batch_2.bin").write_bytes(b"\x01" * 3072)
    with pytest.raises(FormatError, match="3073") as error:
        load_dataset(str(folder))
    one_line(error, "data_batch_2.bin")
    (folder / "data_batch_2.bin").write_bytes(b"\x0b" * 3073)
    with pytest.raises(FormatError, match="is 11; expected 0 to 9"):
        load_dataset(str(folder))
    (folder / "test_batch.bin").unlink()
    (folder / "data_batch_2.bin").unlink()
    with pytest.raises(FormatError, match="test_batch is missing"):
        load_dataset(str(folder))
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder / "data_batch_1.bin")
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="truncated or broken gzip file") as error:
        load_dataset(str(archive))
    one_line(error, archive.name)
