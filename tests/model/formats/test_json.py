"""The JSON network file: exact numbers, and every way to break the file."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bnncert.errors import FormatError
from bnncert.model.description import Shift
from bnncert.model.formats.weight_arrays import read_json
from bnncert.model.loading import load
from bnncert.model.network import Network

CASES = settings(max_examples=60, deadline=None, derandomize=True)


def tree(**changes: Any) -> dict[str, Any]:
    """Return a small network, with some keys replaced (None removes)."""
    content: dict[str, Any] = {
        "W0": [[0.5, -1.25], [1, 0]],
        "b0": [0.25, -0.5],
        "W1": [[1, -1], [0, 1]],
        "b1": [1, -1.0],
        "W2": [[1.5, 0], [-1, 2]],
        "b2": [0, 0.125],
    }
    content.update(changes)
    return {key: value for key, value in content.items() if value is not None}


def refuse(path: Path, content: bytes | str) -> str:
    """Check that reading the file is a FormatError of one line that names the file."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FormatError) as caught:
        load(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


# --- what a file means -----------------------------------------------------------------------


def test_nested_lists_are_the_network(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(tree(sign_zero="minus", input_lo=[0, 0], input_hi=1)))
    net = load(path)
    content = tree()
    assert net.layers[0].weights.toarray().tolist() == content["W0"]
    assert net.layers[1].weights.toarray().tolist() == content["W1"]
    assert net.output.weights.tolist() == content["W2"]
    assert net.output.bias.tolist() == content["b2"]
    assert (net.sign_zero, net.kind, net.input_shape) == ("minus", "json", (2,))
    assert net.input_hi is not None
    assert net.input_hi.tolist() == [1.0, 1.0]
    # At (3, 1): first layer (0.5, 2.5), second layer (1, 0) and sign(0) = -1.
    assert net.evaluate_exactly([Fraction(3), Fraction(1)]) == [Fraction(3, 2), Fraction(-23, 8)]


@CASES
@given(x=st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_may_be_decimal_or_hexadecimal_strings(x: float) -> None:
    content = tree(b0=[x, repr(x)], b2=[x.hex(), "0x1p-3"])
    first, _, last = read_json(json.dumps(content).encode(), "net.json").stages
    (before, after) = first.steps[-1], last.steps[-1]
    assert isinstance(before, Shift)
    assert isinstance(after, Shift)
    assert before.offset.tolist() == [x, x]
    assert after.offset.tolist() == [x, 0.125]


@CASES
@given(seed=st.integers(0, 10**6))
def test_written_file_reads_back_bit_for_bit(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-300, 99)
    net = Network.from_arrays(
        [scale * rng.normal(size=(3, 2)), rng.integers(-1, 2, (3, 3)), rng.normal(size=(2, 3))],
        [scale * rng.normal(size=3), rng.normal(size=3), rng.normal(size=2)],
        input_lo=rng.normal(size=2) - 9,
    )
    path = tmp_path_factory.mktemp("json") / "net.json"
    net.save(path)
    back = load(path)
    assert back.content_hash == net.content_hash
    assert back.input_lo is not None
    assert net.input_lo is not None
    assert back.input_lo.tolist() == net.input_lo.tolist()
    # The written file is JSON that anything can read.
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written["W2"] == net.output.weights.tolist()


def test_json_is_recognised_by_content(tmp_path: Path) -> None:
    text = "\n  " + json.dumps(tree())
    (tmp_path / "net.json").write_text(text)
    (tmp_path / "net.model").write_text(text)
    (tmp_path / "net.json.gz").write_bytes(gzip.compress(text.encode()))
    hashes = {load(tmp_path / n).content_hash for n in ("net.json", "net.model", "net.json.gz")}
    assert len(hashes) == 1


# --- broken files ----------------------------------------------------------------------------


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    text = json.dumps(tree())
    for length in range(1, len(text), 5):
        refuse(tmp_path / "net.json", text[:length])


def test_syntax_errors_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    message = refuse(path, '{\n"W0": [[1]],\n"b0": [1,,2]\n}')
    assert f"{path}:3: not valid JSON" in message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"hello", "not .json"),
        (b"[1, 2]", "expected a JSON object"),
        (b'{"W0": "\xff"}', "not UTF-8"),
        (b'\xef\xbb\xbf{"W0": [[1]]}', "not .json"),
        (b"{}", "no array W0"),
        (b"{" * 3000, "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"W0": ' + b"[" * 300 + b"1" + b"]" * 300 + b"}", "W0: not a rectangular array"),
        (b'{"W0": ' + b"[" * 600 + b"1" + b"]" * 600 + b"}", ""),
        (b'{"W0": [[' + b"9" * 5000 + b"]]}", ""),
    ],
)
def test_broken_text_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    assert reason in refuse(tmp_path / "net.json", content)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"W0": None}, "no array W0"),
        ({"b0": None}, "array b0 is missing"),
        ({"W1": None}, "unknown array W2"),
        ({"weights": [1]}, "unknown array weights"),
        ({"a\nb": [1]}, "unknown array"),
        ({"W0": [[1, 2], [3]]}, "W0: not a rectangular array of numbers"),
        ({"W0": [[1, [2]], [3, 4]]}, "W0: not a rectangular array of numbers"),
        ({"W0": [[{}, 1], [1, 1]]}, "W0: not a rectangular array of numbers"),
        ({"W0": [[True, "yes"], [1, 1]]}, "W0: not a rectangular array of numbers"),
        ({"W0": {"0": [1, 1]}}, "W0: not a rectangular array of numbers"),
        ({"W0": [[1, 10**30], [1, 1]]}, "W0: not a rectangular array of numbers"),
        ({"W0": [["0xzz", 1], [1, 1]]}, "W0: not a rectangular array of numbers"),
        ({"W0": [["0x1p99999", 1], [1, 1]]}, "W0: not a rectangular array of numbers"),
        ({"W0": []}, "W0 has shape (0,)"),
        ({"W0": [[], []]}, "W0 has shape (2, 0)"),
        ({"W0": 1.5}, "W0 has shape ()"),
        ({"W0": 1.5, "input_shape": [1]}, "W0"),
        ({"W0": [1, 2]}, "W0 has shape (2,)"),
        ({"W0": [[float("nan"), 1], [1, 1]]}, "W0 contains NaN"),
        ({"b0": [float("inf"), 1]}, "b0 contains NaN or infinity"),
        ({"b0": ["1e999", 1]}, "b0 contains NaN or infinity"),
        ({"b0": [1]}, "b0 has shape (1,)"),
        ({"W1": [[1, 1, 1], [1, 1, 1]]}, "W1: weights take 3 inputs, the layer before has 2"),
        ({"W1": [[1, 0.5], [1, 1]]}, "W1: neuron 0 has weight 0.5"),
        ({"sign_zero": "up"}, "sign_zero is 'up'"),
        ({"sign_zero": ["plus"]}, "sign_zero is"),
        ({"input_shape": [3]}, "input_shape (3,)"),
        ({"input_shape": [0.5]}, "input_shape"),
        ({"input_shape": [float("inf")]}, "input_shape"),
        ({"input_shape": [float("nan")]}, "input_shape"),
        ({"input_lo": [1, 2, 3]}, "input bounds of shape (3,)"),
        ({"input_lo": 1, "input_hi": 0}, "input_lo is above input_hi"),
    ],
)
def test_wrong_content_is_refused_with_a_reason(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    assert reason in refuse(tmp_path / "net.json", json.dumps(tree(**changes)))


def test_null_is_not_a_number(tmp_path: Path) -> None:
    text = json.dumps(tree(W0=[[1, 7], [1, 1]])).replace("7", "null")
    assert "W0: not a rectangular array of numbers" in refuse(tmp_path / "net.json", text)
