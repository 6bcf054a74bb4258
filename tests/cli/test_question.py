"""The point, its class and its ball, as the options of verify, bound and radius describe them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.diamond import Run, read_json
from tests.in_process import Outcome

#: Each command with the radius that it needs.
ASKING = {
    "verify": ("verify", "net.npz", "--radius", "0.1"),
    "bound": ("bound", "net.npz", "--radius", "0.1", "--method", "interval"),
    "radius": ("radius", "net.npz", "--max", "0.1"),
}

#: The network answers 0, 0 and 1; the true classes say 0, 2 and 1.
POINTS = np.array([[1.0, 0.0], [1.5, 0.25], [0.0, -1.0]])
TRUE_CLASSES = np.array([0, 2, 1])


@pytest.fixture
def folder(folder: Path) -> Path:
    np.save(folder / "batch.npy", POINTS)
    np.save(folder / "one.npy", POINTS[:1])
    return folder


def one_line(outcome: Outcome) -> str:
    assert outcome.code == 2, outcome
    assert outcome.err.count("\n") == 1 and "Traceback" not in outcome.err
    return outcome.err


# --- which point -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ASKING)
def test_a_batch_without_index_is_refused(run: Run, folder: Path, command: str) -> None:
    message = one_line(run(*ASKING[command], "--input", "batch.npy"))
    assert "batch.npy: holds 3 points; choose one with --index (0 to 2)" in message


@pytest.mark.parametrize("command", ASKING)
def test_a_batch_of_one_point_needs_no_index(run: Run, folder: Path, command: str) -> None:
    outcome = run(*ASKING[command], "--input", "one.npy")
    assert outcome.code == 0
    assert "net.npz, one.npy: label 0" in outcome.out


@pytest.mark.parametrize("command", ASKING)
def test_the_first_line_says_which_point_of_how_many(run: Run, folder: Path, command: str) -> None:
    outcome = run(*ASKING[command], "--input", "batch.npy", "--index", "1", "--json", "a.json")
    assert outcome.code == 0
    assert "net.npz, batch.npy [1] (of 3 points): label 0" in outcome.out
    assert read_json(folder / "a.json")["input"] == "batch.npy [1]"


# --- its class -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ASKING)
def test_the_label_beside_the_points_is_the_label(run: Run, folder: Path, command: str) -> None:
    np.savez("data.npz", x_test=POINTS, y_test=TRUE_CLASSES, x_train=POINTS, y_train=[1, 1, 1])
    ask = (*ASKING[command], "--input", "data.npz:x_test", "--index")
    outcome = run(*ask, "2", "--json", "a.json")
    assert outcome.code == 0
    assert "data.npz:x_test [2] (of 3 points): label 1," in outcome.out
    assert read_json(folder / "a.json")["labels"] == "given"
    # Point 1 has class 2, which is not what the network says.
    if command == "verify":
        assert "misclassified in" in run(*ask, "1").out


@pytest.mark.parametrize("command", ASKING)
def test_an_answer_without_a_label_says_so(run: Run, folder: Path, command: str) -> None:
    outcome = run(*ASKING[command], "--input", "one.npy", "--json", "a.json")
    assert "label 0 (the network's own answer)," in outcome.out
    assert read_json(folder / "a.json")["labels"] == "own"
    given = run(*ASKING[command], "--input", "one.npy", "--label", "0", "--json", "a.json")
    assert "one.npy: label 0," in given.out
    assert read_json(folder / "a.json")["labels"] == "given"


@pytest.mark.parametrize("command", ASKING)
def test_labels_from_a_file(run: Run, folder: Path, command: str) -> None:
    Path("y.csv").write_text("0\n2\n1\n")
    ask = (*ASKING[command], "--input", "batch.npy", "--index", "2", "--labels")
    assert "[2] (of 3 points): label 1," in run(*ask, "y.csv").out
    assert "label 1 (the network's own answer)" in run(*ask, "own").out
    assert "--label and --labels" in one_line(run(*ask, "y.csv", "--label", "1"))
    Path("y.csv").write_text("0\n2\n")
    assert "y.csv: 2 labels for 3 points" in one_line(run(*ask, "y.csv"))
    Path("y.csv").write_text("0\n2\n3\n")
    message = one_line(run(*ask, "y.csv"))
    assert "y.csv: label 2 is 3; the network has classes 0 to 2" in message


def test_ambiguous_labels_are_refused_unless_one_is_chosen(run: Run, folder: Path) -> None:
    np.savez("data.npz", images=POINTS, labels=TRUE_CLASSES, y=TRUE_CLASSES)
    ask = (*ASKING["verify"], "--input", "data.npz:images", "--index", "0")
    assert "labels, y may be the labels of images" in one_line(run(*ask))
    assert run(*ask, "--labels", "data.npz:y").code == 0
    assert run(*ask, "--label", "0").code == 0
