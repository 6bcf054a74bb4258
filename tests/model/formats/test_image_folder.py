"""Folders of images: their order, and where the classes come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from bnncert.errors import FormatError
from bnncert.model.formats.labels import folder_labels, list_images, natural_order


def make(folder: Path, *names: str) -> Path:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    return folder


def labels(folder: Path, text: str | None = None, classes: int | None = 10) -> list[int] | None:
    found, _ = folder_labels(list_images(folder), text, classes)
    return None if found is None else found.tolist()


def test_numbers_are_in_the_order_of_numbers() -> None:
    assert natural_order(["a10", "a9", "b", "2", "11", "02"]) == ["02", "2", "11", "a9", "a10", "b"]


def test_other_files_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, "10.png", "2.JPG", "notes.md", ".hidden.png", "sub/3.png")
    assert list_images(tmp_path).names == ("2.JPG", "10.png")
    assert labels(tmp_path) is None


def test_subfolders_are_classes(tmp_path: Path) -> None:
    make(tmp_path, "cat/1.png", "cat/2.png", "dog/1.png", "dog/readme.txt")
    folder = list_images(tmp_path)
    assert folder.names == ("cat/1.png", "cat/2.png", "dog/1.png")
    assert labels(tmp_path, classes=2) == [0, 0, 1]
    with pytest.raises(FormatError, match="2 subfolders for 10 classes, and cat is not the number"):
        labels(tmp_path, classes=10)


def test_some_of_the_classes_have_their_numbers(tmp_path: Path) -> None:
    make(tmp_path, "7/a.png", "3/a.png", "10/a.png")
    assert labels(tmp_path, classes=11) == [3, 7, 10]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "file,label\nb.png,4\na.png,3\n"),
        ("labels.csv", "b.png,4\na.png,3\nmissing.png,7\n"),
        ("labels.txt", "b.png 4\na.png\t3\n"),
        ("labels.txt", "3\n4\n"),
    ],
)
def test_a_table_beside_the_images(tmp_path: Path, name: str, text: str) -> None:
    make(tmp_path, "a.png", "b.png")
    (tmp_path / name).write_text(text)
    assert labels(tmp_path) == [3, 4]
    other = tmp_path / "other.csv"
    other.write_text("b.png,1\na.png,0\n")
    assert labels(tmp_path, str(other)) == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.png,3\n", r"labels\.csv: no class for b\.png"),
        ("a.png,3\nb.png,x\n", r"labels\.csv:2: class 'x' of b\.png; expected a number"),
        ("a.png,3\nb.png,2\na.png,1\n", r"labels\.csv:3: a\.png again, with another class"),
    ],
)
def test_wrong_tables(tmp_path: Path, text: str, message: str) -> None:
    make(tmp_path, "a.png", "b.png")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(FormatError, match=message):
        labels(tmp_path)


def test_a_folder_without_images(tmp_path: Path) -> None:
    make(tmp_path, "notes.txt", "sub/notes.txt")
    with pytest.raises(FormatError, match="no image in this folder or its subfolders"):
        list_images(tmp_path)


def test_a_name_of_two_images_does_not_state_a_class(tmp_path: Path) -> None:
    make(tmp_path, "cat/1.png", "cat/2.png", "dog/1.png")
    table = tmp_path / "labels.csv"
    table.write_text("1.png,3\n2.png,4\n")
    with pytest.raises(FormatError, match=r"2 images are named 1\.png; expected cat/1\.png"):
        labels(tmp_path)
    table.write_text("cat/1.png,3\n2.png,4\ndog/1.png,5\n")
    assert labels(tmp_path) == [3, 4, 5]
