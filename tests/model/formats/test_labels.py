"""True classes of points: in files, and of folders of images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.model.formats.inputs import (
    checked_labels,
    folder_labels,
    label_name,
    list_images,
    natural_order,
    read_labels,
)

CHOSEN = {
    ("images", "labels"): ("images", "labels"),
    ("x", "y"): ("x", "y"),
    ("a", "label"): ("a", "label"),
    ("x_train", "y_train", "x_test", "y_test"): ("x_test", "y_test"),
    ("x_train", "y_train", "x_test", "y_test", "labels"): ("x_train", "y_train"),
    ("Xtest", "ytest", "Xtrain", "ytrain"): ("Xtest", "ytest"),
    ("testImages", "testLabels", "trainImages", "trainLabels"): ("trainImages", "trainLabels"),
    ("test_x", "targets_test", "targets_train"): ("test_x", "targets_test"),
    ("x_test", "labels"): ("x_test", "labels"),
    ("data", "y_test"): ("data", "y_test"),
    ("a", "b", "y"): ("b", "y"),
    # The labels of other points are not the labels of these.
    ("x_train", "y_train", "x_test"): ("x_test", None),
    ("points", "input_lo", "input_hi"): ("points", None),
    ("yellow", "x"): ("x", None),
}


@pytest.mark.parametrize("names", CHOSEN, ids=" ".join)
def test_labels_belong_to_the_points_of_the_same_part(names: tuple[str, ...]) -> None:
    points, labels = CHOSEN[names]
    assert label_name(names, points, "data.npz") == labels
    assert label_name(names[::-1], points, "data.npz") == labels


@pytest.mark.parametrize(
    ("names", "points", "candidates"),
    [
        (("x_test", "y_test", "labels_test"), "x_test", "y_test, labels_test"),
        (("images", "labels", "y"), "images", "labels, y"),
        (("images", "y_train", "y_test"), "images", "y_train, y_test"),
    ],
)
def test_several_candidates_are_named(names: tuple[str, ...], points: str, candidates: str) -> None:
    with pytest.raises(FormatError, match=f"data.npz: {candidates} may be the labels.*--labels"):
        label_name(names, points, "data.npz")


FILES = {
    "a.csv": "3\n1\n2\n",
    "line.txt": " 3, 1,2\n",
    "headed.csv": "label\n3\n1\n2\n",
    "table.csv": "image,label\n0.png,3\n1.png,1\n2.png,2\n",
    "named.csv:truth": "truth,label\n3,0\n1,0\n2,0\n",
    "a.json": "[3, 1, 2]",
    "object.json": '{"labels": [3, 1, 2], "names": ["a"]}',
    "object.json:truth": '{"labels": [0, 0, 0], "truth": [3, 1, 2]}',
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name.partition(":")[0]).write_text(FILES[name])
    assert read_labels(name).tolist() == [3, 1, 2]


def test_arrays_of_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[3], [1], [2]], dtype=np.uint8))
    assert read_labels(str(tmp_path / "a.npy")).tolist() == [3, 1, 2]
    np.savez(tmp_path / "a.npz", x=np.ones(3), y_test=[3, 1, 2], y_train=[0.0, 1.0])
    assert read_labels(f"{tmp_path / 'a.npz'}:y_test").tolist() == [3, 1, 2]
    assert read_labels(f"{tmp_path / 'a.npz'}:y_train").tolist() == [0, 1]
    with pytest.raises(FormatError, match="holds y_test, y_train; name one as"):
        read_labels(str(tmp_path / "a.npz"))


BAD_FILES = {
    "a.csv": ("3\nx\n2\n", "row 2 has 'x'"),
    "short.csv": ("a,label\n1,2\n1\n", "row 3 has ''"),
    "two.csv": ("1,2\n3,4\n", "2 columns"),
    "none.csv": ("a,b\n3,4\n", "no array of labels"),
    "named.csv:c": ("a,b\n3,4\n", "no column 'c'; it has a, b"),
    "unnamed.csv:c": ("3\n4\n", "names no columns"),
    "empty.txt": ("\n", "empty"),
    "real.txt": ("1.5\n2\n", "1.5"),
    "large.txt": ("99999999999\n1\n", "expected classes"),
    "a.json": ("[1, true]", "value 1 is True"),
    "b.json": ("[1, 2", "not valid JSON"),
    "c.json": ("[]", "expected a list"),
    "c.json:a": ("[1]", "has no key 'a'"),
    "d.json:a": ('{"b": [1]}', "no key 'a'; it holds b"),
    "a.dat": ("1", "labels are read from"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_of_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    text, message = BAD_FILES[name]
    file = name.partition(":")[0]
    Path(file).write_text(text)
    with pytest.raises(FormatError) as caught:
        read_labels(name)
    assert str(caught.value).startswith(file)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_are_one_line_too(tmp_path: Path) -> None:
    for name in ("a.npy", "a.npz", "a.csv", "a.json", "a.npz:y"):
        with pytest.raises(FormatError, match=name.partition(":")[0]):
            read_labels(str(tmp_path / name))
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(FormatError, match="not UTF-8"):
        read_labels(str(tmp_path / "b.csv"))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(FormatError, match="nested too deeply"):
        read_labels(str(tmp_path / "deep.json"))
    (tmp_path / "huge.json").write_text(json.dumps([10**400]))
    with pytest.raises(FormatError, match="expected classes"):
        read_labels(str(tmp_path / "huge.json"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, 1.0], "not whole numbers"),
        ([np.nan, 1.0], "not whole numbers"),
        ([[1, 0], [0, 1]], "one class for each point"),
        ([1e18, 0.0], "not classes"),
        (["a", "b"], "not whole numbers"),
    ],
)
def test_arrays_that_are_not_labels(values: list[object], message: str) -> None:
    with pytest.raises(FormatError, match=f"y.npy: .*{message}"):
        checked_labels(np.array(values), "y.npy")


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
