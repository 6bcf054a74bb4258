"""Which array holds the labels of which points, and files of labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.model.formats.labels import checked_labels, label_name, read_labels

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
