"""A network is compared with its source before it is returned."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bnncert
from bnncert.errors import InputError
from bnncert.model import loading as comparison
from bnncert.model.description import CannotExecuteError, Execution, ModelDescription
from bnncert.model.formats.model_files import read_description
from bnncert.model.formats.onnx import operators
from bnncert.model.formats.weight_arrays import array_stages
from bnncert.model.loading import compared
from tests.in_process import command_line


def stages(rng: np.random.Generator, sizes: Sequence[int]) -> tuple[list[Any], list[Any]]:
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    return (
        [rng.choice([-1.0, 1.0], size=shape) for shape in shapes],
        [rng.integers(-2, 3, size=shape[0]) + 0.3 for shape in shapes],
    )


def layered(weights: list[Any], biases: list[Any], shift: float = 0.0, zero: float = 0.0) -> Any:
    """Return the outputs of a network in plain NumPy, with its first thresholds shifted."""

    def outputs(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        x = points
        for k, (w, b) in enumerate(zip(weights, biases, strict=True)):
            value = x @ w.T + b + (shift if k == 0 else 0.0)
            x = np.where(value == 0, zero, np.sign(value)) if k + 1 < len(weights) else value
        return np.asarray(x)

    return outputs


def described(weights: list[Any], biases: list[Any], execution: Execution) -> ModelDescription:
    made = array_stages(weights, biases, "net", sign_zero=None)
    box = np.full(1, -1.0), np.full(1, 1.0)
    shape = (weights[0].shape[1],)
    return ModelDescription(made, shape, *box, source="net", kind="test", execution=execution)


def imported(description: ModelDescription) -> bnncert.Network:
    return compared(bnncert.Network.from_description(description), description)


@pytest.mark.parametrize("sizes", [(6, 5, 4, 3), (30, 20, 2), (12, 7, 7, 1)])
def test_only_a_real_difference_is_an_error(sizes: tuple[int, ...]) -> None:
    weights, biases = stages(np.random.default_rng(1), sizes)
    same = imported(described(weights, biases, Execution("other", layered(weights, biases))))
    assert same.notes == ()
    # A threshold that is wrong by the rounding error of float32 cannot be told from the right one.
    near = layered(weights, biases, shift=1e-7)
    assert imported(described(weights, biases, Execution("other", near))).notes == ()
    # One that is wrong by a fiftieth lies between points on both sides of a threshold.
    wrong = layered(weights, biases, shift=0.02)
    with pytest.raises(InputError, match=r"^net: was read as another network than other executes"):
        imported(described(weights, biases, Execution("other", wrong)))


def test_the_error_names_the_point_and_both_classes() -> None:
    weights, biases = (
        [np.array([[1.0, 1.0]]), np.array([[1.0], [-1.0]])],
        [np.zeros(1), np.zeros(2)],
    )
    swapped = [weights[0], -weights[1]]
    with pytest.raises(InputError) as caught:
        imported(described(weights, biases, Execution("other", layered(swapped, biases))))
    # The first point is a corner of the box.
    assert str(caught.value) == (
        "net: was read as another network than other executes: at input 0 of the comparison, "
        "(-1, -1), it has class 1 here, class 0 in other"
    )


def test_different_scores_are_an_error_even_if_the_classes_are_the_same() -> None:
    weights, biases = stages(np.random.default_rng(3), (6, 5, 3))
    right = layered(weights, biases)
    with pytest.raises(InputError, match=r"it has scores .* here, .* in other"):
        imported(described(weights, biases, Execution("other", lambda x: right(x) + 1)))


def test_sums_that_are_exactly_zero_count() -> None:
    """Sums of 32 signs are often 0: then torch.sign and Sign of ONNX are 0."""
    rng = np.random.default_rng(5)
    weights = [rng.choice([-1.0, 1.0], size=shape) for shape in ((32, 9), (32, 32), (3, 32))]
    biases = [np.full(32, 0.5), np.zeros(32), np.zeros(3)]
    at_zero = layered(weights, biases)
    assert imported(described(weights, biases, Execution("other", at_zero))).notes == ()
    with pytest.raises(InputError, match="was read as another network"):
        imported(described(weights, biases, Execution("other", layered(weights, biases, zero=1))))
    undefined = Execution("other", layered(weights, biases, zero=1), sign_of_zero_is_zero=False)
    assert (
        "of 256 inputs only: the others lie within rounding"
        in (imported(described(weights, biases, undefined)).notes[0])
    )


def test_the_points_are_in_the_box_and_on_both_sides_of_thresholds() -> None:
    weights, biases = stages(np.random.default_rng(2), (7, 5, 2))
    lo, hi = np.linspace(-1, 0.5, 7), np.linspace(-1, 3, 7)
    network = bnncert.Network.from_arrays(weights, biases, input_lo=lo, input_hi=hi)
    points = np.concatenate([group.points for group in comparison._points(network, 256)])
    assert points.shape == (256, 7)
    assert np.all((points >= lo - 1e-6) & (points <= hi + 1e-6))
    corners = np.all((np.abs(points - lo) < 1e-6) | (np.abs(points - hi) < 1e-6), axis=1)
    assert np.count_nonzero(corners) >= 64
    sums = points @ weights[0].T + biases[0]
    ends = [np.where(weights[0] * side > 0, hi, lo) for side in (1, -1)]
    high, low = (np.sum(weights[0] * end, axis=1) + biases[0] for end in ends)
    crossing = (low < -0.1) & (high > 0.1)
    assert np.count_nonzero(crossing) >= 3
    near = sums[:, crossing]
    assert np.all(np.where(near > 0, near, np.inf).min(axis=0) < 0.2)
    assert np.all(np.where(near < 0, near, -np.inf).max(axis=0) > -0.2)


def test_a_large_network_is_compared_at_fewer_points(monkeypatch: pytest.MonkeyPatch) -> None:
    weights, biases = stages(np.random.default_rng(1), (6, 5, 3))
    monkeypatch.setattr(comparison, "PRODUCTS", 4500)
    network = imported(described(weights, biases, Execution("other", layered(weights, biases))))
    # 45 weights: 100 points.
    assert network.notes == ("compared with other at 100 inputs only, because it is large",)


def test_a_program_that_cannot_execute_the_model_is_mentioned() -> None:
    weights, biases = stages(np.random.default_rng(1), (6, 5, 3))

    def outputs(points: Any) -> Any:
        raise CannotExecuteError("is not installed")

    network = imported(described(weights, biases, Execution("other", outputs)))
    assert network.notes == ("not compared with other, which is not installed",)


# -- files --------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    weights, biases = stages(np.random.default_rng(8), (6, 5, 5, 3))
    network = bnncert.Network.from_arrays(weights, biases, input_lo=-1, input_hi=1)
    network.save(tmp_path / "net.onnx")
    network.save(tmp_path / "net.npz")
    return tmp_path


def test_an_onnx_file_that_is_read_wrongly_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra 'replay'")
    assert bnncert.load(saved / "net.onnx").notes == ()
    right = operators.HANDLERS["Add"]

    def without_bias(walk: Any, node: Any, operands: Any) -> Any:
        return operands[0] if len(walk.stages) == 1 else right(walk, node, operands)

    monkeypatch.setitem(operators.HANDLERS, "Add", without_bias)
    with pytest.raises(InputError, match=r"net\.onnx: was read as another network than onn"):
        bnncert.load(saved / "net.onnx")
    done = command_line(monkeypatch, capsys)("info", str(saved / "net.onnx"))
    assert done.code == 2
    assert "was read as another network than onnxruntime executes" in done.err


def test_without_onnxruntime_there_is_a_note(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else found(name)
    )
    note = "not compared with onnxruntime, which is not installed (pip install bnncert[replay])"
    assert bnncert.load(saved / "net.onnx").notes == (note,)


def test_files_of_bnncert_itself_have_no_other_source(saved: Path) -> None:
    assert read_description(saved / "net.npz").execution is None
    assert bnncert.load(saved / "net.npz").notes == ()
