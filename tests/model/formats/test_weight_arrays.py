"""The network files .npz and .json: what is read and written, and every error."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bnncert.errors import FormatError, UnsupportedModelError
from bnncert.model.description import Shift
from bnncert.model.formats.model_files import read_description
from bnncert.model.formats.weight_arrays import (
    SPARSE_BELOW,
    pack_ternary,
    read_json,
    read_npz,
    unpack_ternary,
)
from bnncert.model.loading import load
from bnncert.model.network import Network
from tests.strategies import few

CASES = few(20)

Array = npt.NDArray[Any]


def arrays(**changes: Any) -> dict[str, Any]:
    """Return the arrays of a small network, with some replaced (None removes)."""
    content: dict[str, Any] = {
        "W0": np.array([[0.5, -1.25], [1.0, 0.0], [2.0, 1.0]]),
        "b0": np.array([0.25, -0.5, 0.0]),
        "W1": np.array([[1, -1, 0], [0, 1, 1]], dtype=np.int8),
        "b1": np.array([1.0, -1.0]),
        "W2": np.array([[1.5, 0.0], [-1.0, 2.0]]),
        "b2": np.array([0.0, 0.125]),
    }
    content.update(changes)
    return {key: value for key, value in content.items() if value is not None}


def as_bytes(**content: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **content)
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def refuse(path: Path, content: bytes | str) -> str:
    """Check that reading the file is a FormatError of one line that names the file."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FormatError) as caught:
        load(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


# --- storage ---------------------------------------------------------------------------------


def two_bits(weights: Array) -> list[int]:
    """Pack by arithmetic on single weights, as the format's description says."""
    codes = [{0: 0, 1: 1, -1: 2}[int(v)] for v in weights.reshape(-1)]
    packed = [0] * (-(-len(codes) // 4))
    for k, code in enumerate(codes):
        packed[k // 4] += code * 4 ** (k % 4)
    return packed


@CASES
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 9), columns=st.integers(1, 9))
def test_packing_is_two_bits_a_weight_and_undone(seed: int, rows: int, columns: int) -> None:
    weights = np.random.default_rng(seed).integers(-1, 2, (rows, columns)).astype(np.int8)
    packed = pack_ternary(weights)
    assert packed.dtype == np.uint8
    assert packed.tolist() == two_bits(weights)
    np.testing.assert_array_equal(unpack_ternary(packed, (rows, columns)), weights)


@pytest.mark.parametrize(
    ("packed", "shape"), [([3], (1, 1)), ([0, 0], (2, 2)), ([], (1, 1)), ([0b11000000], (2, 2))]
)
def test_what_was_not_packed_is_not_unpacked(packed: list[int], shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="packed ternary"):
        unpack_ternary(np.array(packed, dtype=np.uint8), shape)


def stored(name: str, matrix: Array, how: str) -> dict[str, Any]:
    if how == "dense":
        return {name: matrix}
    shape = np.array(matrix.shape)
    if how == "packed":
        return {
            f"{name}_packed": np.array(two_bits(matrix), dtype=np.uint8),
            f"{name}_shape": shape,
        }
    data, indices, indptr = [], [], [0]
    for row in matrix:
        data += [v for v in row if v]
        indices += [j for j, v in enumerate(row) if v]
        indptr.append(len(data))
    return {
        f"{name}_data": np.array(data),
        f"{name}_indices": np.array(indices, dtype=np.int32),
        f"{name}_indptr": np.array(indptr, dtype=np.int32),
        f"{name}_shape": shape,
    }


@pytest.mark.parametrize("first", ["dense", "sparse"])
@pytest.mark.parametrize("hidden", ["dense", "packed", "sparse"])
def test_every_storage_reads_as_the_same_network(tmp_path: Path, first: str, hidden: str) -> None:
    plain = arrays()
    content = arrays(W0=None, W1=None)
    content.update(stored("W0", plain["W0"], first))
    content.update(stored("W1", plain["W1"], hidden))
    path = tmp_path / "net.npz"
    path.write_bytes(as_bytes(**content))
    net = load(path)
    expected = Network.from_arrays(
        [plain[f"W{i}"] for i in range(3)], [plain[f"b{i}"] for i in range(3)]
    )
    np.testing.assert_array_equal(net.layers[0].weights.toarray(), plain["W0"])
    np.testing.assert_array_equal(net.layers[1].weights.toarray(), plain["W1"])
    np.testing.assert_array_equal(net.output.weights, plain["W2"])
    assert net.content_hash == expected.content_hash
    assert net.kind == "npz"


def test_unsorted_and_repeated_sparse_entries_are_summed(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    sparse = {
        "W0_data": np.array([2.0, 0.25, 0.25, -1.0]),
        "W0_indices": np.array([1, 0, 0, 1]),
        "W0_indptr": np.array([0, 3, 3, 4]),
        "W0_shape": np.array([3, 2]),
    }
    path.write_bytes(as_bytes(**arrays(W0=None), **sparse))
    expected = [[0.5, 2.0], [0.0, 0.0], [0.0, -1.0]]
    assert load(path).layers[0].weights.toarray().tolist() == expected


def test_optional_arrays_are_read(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    path.write_bytes(
        as_bytes(
            **arrays(),
            input_lo=np.array(-1),
            input_hi=np.array([1.0, 2.0]),
            input_shape=np.array([1, 2, 1]),
            sign_zero=np.array("minus"),
        )
    )
    net = load(path)
    assert net.input_lo is not None
    assert net.input_hi is not None
    assert (net.input_lo.tolist(), net.input_hi.tolist()) == ([-1.0, -1.0], [1.0, 2.0])
    assert net.input_shape == (1, 2, 1)
    assert net.sign_zero == "minus"


def test_gzipped_file_and_other_suffix_are_recognised_by_content(tmp_path: Path) -> None:
    content = as_bytes(**arrays())
    (tmp_path / "net.npz").write_bytes(content)
    (tmp_path / "net.npz.gz").write_bytes(gzip.compress(content))
    (tmp_path / "net").write_bytes(content)
    hashes = {load(tmp_path / n).content_hash for n in ("net.npz", "net.npz.gz", "net")}
    assert len(hashes) == 1


@pytest.mark.parametrize("how", ["packed", "sparse", "dense"])
def test_writer_chooses_the_storage_and_reads_it_back(tmp_path: Path, how: str) -> None:
    rng = np.random.default_rng(1)
    wide = 200
    hidden = rng.choice([-1, 1], (60, wide)).astype(np.int8)
    first = rng.normal(size=(wide, 3))
    if how == "sparse":
        hidden[rng.uniform(size=hidden.shape) > SPARSE_BELOW / 2] = 0
    weights: list[Array] = [first, hidden, rng.integers(-1, 2, (2, 60))]
    net = Network.from_arrays(weights, [np.zeros(wide), np.zeros(60), np.zeros(2)])
    net.save(tmp_path / "net.npz")
    with np.load(tmp_path / "net.npz") as archive:
        names = set(archive.files)
        assert "W0" in names
        if how == "sparse":
            assert {"W1_data", "W1_indices", "W1_indptr", "W1_shape"} <= names
        else:
            assert archive["W1_packed"].tolist() == two_bits(hidden)
    assert load(tmp_path / "net.npz").content_hash == net.content_hash


def test_layers_with_different_sign_zero_cannot_be_written(tmp_path: Path) -> None:
    from dataclasses import replace

    net = Network.from_arrays([np.eye(2)] * 3, [np.zeros(2)] * 3)
    mixed = replace(net, layers=(net.layers[0], replace(net.layers[1], sign_zero="minus")))
    with pytest.raises(FormatError, match="different values of sign"):
        mixed.save(tmp_path / "net.npz")


# --- broken files ----------------------------------------------------------------------------


def test_missing_empty_and_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none\.npz: no such file"):
        load(tmp_path / "none.npz")
    with pytest.raises(FormatError, match="is a directory"):
        load(tmp_path)
    assert "empty" in refuse(tmp_path / "empty.npz", b"")
    assert "not .npz" in refuse(tmp_path / "text.npz", b"hello, world")
    buffer = io.BytesIO()
    np.save(buffer, np.eye(2))
    assert "not .npz" in refuse(tmp_path / "single.npz", buffer.getvalue())
    assert "gzip" in refuse(tmp_path / "cut.npz.gz", gzip.compress(as_bytes(**arrays()))[:-20])


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = as_bytes(**arrays())
    for length in range(1, len(content), 37):
        refuse(tmp_path / "net.npz", content[:length])


def test_corrupt_bytes_never_escape_as_another_error(tmp_path: Path) -> None:
    content = as_bytes(**arrays())
    rng = np.random.default_rng(7)
    messages = []
    for _ in range(400):
        broken = bytearray(content)
        for position in rng.integers(0, len(broken), 2):
            broken[position] = int(rng.integers(0, 256))
        try:
            read_npz(bytes(broken), "broken.npz")
        except FormatError as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert all(m.startswith("broken.npz: ") and "\n" not in m for m in messages)


@pytest.mark.parametrize(("offset", "value"), [(6, 0x01), (6, 0x20), (8, 0x63)])
def test_encrypted_patched_and_exotically_compressed_archives_are_refused(
    tmp_path: Path, offset: int, value: int
) -> None:
    # Offsets of the local header; the central directory holds the same fields two bytes later.
    content = bytearray(as_bytes(**arrays()))
    central = content.index(b"PK\x01\x02")
    content[offset] = content[central + offset + 2] = value
    refuse(tmp_path / "net.npz", bytes(content))


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("where", ["W0", "b1", "sign_zero", "extra"])
def test_pickled_objects_are_refused_and_never_unpickled(tmp_path: Path, where: str) -> None:
    trap = tmp_path / "sprung"
    pickle.loads(pickle.dumps(Trap(trap)))
    assert trap.exists()
    trap.unlink()
    content = as_bytes(**{**arrays(), where: np.array([[Trap(trap)]], dtype=object)})
    refuse(tmp_path / "net.npz", content)
    assert not trap.exists()


def test_a_bare_pickle_is_refused_and_never_unpickled(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    refuse(tmp_path / "net.npz", pickle.dumps(Trap(trap)))
    with pytest.raises(FormatError):
        read_npz(pickle.dumps(Trap(trap)), "net.npz")
    assert not trap.exists()


PACKED = np.array([0], dtype=np.uint8)
SPARSE = {
    "W0_data": np.array([1.0]),
    "W0_indices": np.array([0]),
    "W0_indptr": np.array([0, 1, 1, 1]),
    "W0_shape": np.array([3, 2]),
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"W0": None}, "no array W0"),
        ({"b1": None}, "array b1 is missing"),
        ({"W1": None}, "unknown array W2"),
        ({"extra": np.zeros(2)}, "unknown array extra"),
        ({"W1": None, "b1": None, "W2": None, "b2": None}, "at least one hidden layer"),
        ({"W0": np.zeros((3, 4, 2))}, "W0 has shape (3, 4, 2)"),
        ({"W0": np.zeros((0, 2))}, "W0 has shape (0, 2)"),
        ({"W0": np.array([["a", "b"]] * 3)}, "W0 has shape (3, 2) and type <U1"),
        ({"W0": np.ones((3, 2), dtype=complex)}, "complex128"),
        ({"W0": np.ones((3, 2), dtype=bool)}, "bool"),
        ({"W0": np.full((3, 2), np.nan)}, "W0 contains NaN"),
        ({"b0": np.array([0, np.inf, 0])}, "b0 contains NaN or infinity"),
        ({"b0": np.zeros(2)}, "b0 has shape (2,)"),
        ({"b0": np.zeros((3, 1))}, "b0 has shape (3, 1)"),
        ({"b0": np.array(["x"] * 3)}, "b0 has type <U1"),
        ({"W1": np.ones((2, 4))}, "W1: weights take 4 inputs, the layer before has 3"),
        ({"W1": np.array([[1, 2, 0], [0, 1, 1]])}, "W1: neuron 0 has weight 2"),
        ({"sign_zero": np.array("zero")}, "sign_zero is 'zero'"),
        ({"sign_zero": np.array(1)}, "sign_zero is '1'"),
        ({"sign_zero": np.array([], dtype=str)}, "sign_zero"),
        ({"input_lo": np.zeros(3)}, "input bounds of shape (3,)"),
        ({"input_lo": np.array("low")}, "input_lo has type"),
        ({"input_hi": np.array([np.nan, 1])}, "input bound is NaN"),
        ({"input_lo": np.ones(2), "input_hi": np.zeros(2)}, "input_lo is above input_hi"),
        ({"input_shape": np.array([3])}, "input_shape (3,)"),
        ({"input_shape": np.array([-1, -2])}, "input_shape (-1, -2)"),
        ({"input_shape": np.array([0, 2])}, "input_shape (0, 2)"),
        ({"input_shape": np.array(["two"])}, "input_shape"),
        ({"input_shape": np.array([np.nan])}, "input_shape"),
        ({"input_shape": np.array([np.inf])}, "input_shape"),
        ({"input_shape": np.array([2.5])}, "input_shape"),
        ({"W0": np.array(1.0), "input_shape": np.array([1])}, "W0"),
        ({"W0": None, "W0_packed": PACKED}, "W0_packed: not a valid stored matrix"),
        ({"W0": None, "W0_packed": PACKED, "W0_shape": np.array([3])}, "W0_packed"),
        ({"W0": None, "W0_packed": PACKED, "W0_shape": np.array([0, 2])}, "W0_packed"),
        ({"W0": None, "W0_packed": PACKED, "W0_shape": np.array([3, 2])}, "W0_packed"),
        ({"W0": None, "W0_packed": PACKED, "W0_shape": np.array(["a", "b"])}, "W0_packed"),
        ({"W0": None, "W0_packed": PACKED, "W0_shape": np.array([np.inf, 2])}, "W0_packed"),
        ({"W0": None, "W0_packed": np.uint8(0), "W0_shape": np.array([2, 2])}, "W0_packed"),
        ({"W0_shape": np.array([3, 2])}, "unknown array W0_shape"),
        ({"W0": None, **SPARSE, "W0_indices": np.array([2])}, "W0_data: not a valid"),
        ({"W0": None, **SPARSE, "W0_indices": np.array([-1])}, "W0_data: not a valid"),
        ({"W0": None, **SPARSE, "W0_indptr": np.array([0, 1])}, "W0_data: not a valid"),
        ({"W0": None, **SPARSE, "W0_indptr": np.array([0, 9, 1, 1])}, "W0_data: not a valid"),
        ({"W0": None, **SPARSE, "W0_indptr": np.array([0, 9, 9, 9])}, "W0_data: not a valid"),
        ({"W0": None, **SPARSE, "W0_indptr": None}, "W0_data: not a valid"),
        ({"W0": None, **SPARSE, "W0_data": np.ones((1, 1))}, "W0_data: not a valid"),
        ({"W0": None, **SPARSE, "W0_data": np.array(["x"])}, "W0"),
        ({"W0": None, **SPARSE, "W0_indices": np.array([0.5])}, "W0_data: not a valid"),
    ],
)
def test_wrong_content_is_refused_with_a_reason(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    assert reason in refuse(tmp_path / "net.npz", as_bytes(**arrays(**changes)))


def test_members_that_are_not_arrays_are_refused(tmp_path: Path) -> None:
    whole = io.BytesIO(as_bytes(**arrays()))
    with zipfile.ZipFile(whole, "a") as archive:
        archive.writestr("input_shape", b"2")
    refuse(tmp_path / "shape.npz", whole.getvalue())
    refuse(tmp_path / "raw.npz", zipped(W0=b"text", b0=b"text", W1=b"text", b1=b"text"))
    refuse(tmp_path / "readme.npz", zipped(**{"readme.txt": b"text"}))


@pytest.mark.parametrize("shape", [(10**15,), (2**31, 2**31), (-1,)])
def test_a_header_that_promises_too_much_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    refuse(tmp_path / "net.npz", zipped(**{"W0.npy": header.getvalue()}))


def test_reader_keeps_the_numbers_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    content = arrays(W1=0.1 * np.array([[1, -1, 0], [0, 1, 1]]), b1=np.array([0.1, 0.3]))
    path.write_bytes(as_bytes(**content))
    first, hidden, output = read_description(path).stages
    np.testing.assert_array_equal(first.weights.toarray(), content["W0"])
    # One factor a row, taken out and kept as a step: nothing is multiplied or rounded.
    scale, shift = hidden.steps
    np.testing.assert_array_equal(scale.factor, [0.1, 0.1])  # type: ignore[union-attr]
    np.testing.assert_array_equal(shift.offset, [0.1, 0.3])  # type: ignore[union-attr]
    np.testing.assert_array_equal(output.weights.toarray(), content["W2"])


@pytest.mark.parametrize("kind", [">f8", ">f4", "<f2", ">i4", "<i8"])
def test_matrices_of_any_type_and_byte_order_are_the_same_network(
    tmp_path: Path, kind: str
) -> None:
    plain, other = tmp_path / "plain.npz", tmp_path / "other.npz"
    arrays = {"W0": [[1, -1], [1, 1]], "b0": [1, 2], "W1": [[1, 1], [0, -1]], "b1": [0, 1]}
    np.savez(plain, **{name: np.array(value, float) for name, value in arrays.items()})
    np.savez(other, **{name: np.array(value, kind) for name, value in arrays.items()})
    assert load(other).content_hash == load(plain).content_hash


@pytest.mark.parametrize("name", ["W0", "b0", "W1", "b1"])
@pytest.mark.parametrize("kind", ["<i8", "<u8", "<f16"])
def test_numbers_that_would_be_rounded_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / "net.npz"
    arrays = {"W0": [[1, -1], [1, 1]], "b0": [1, 2], "W1": [[1, 1], [0, -1]], "b1": [0, 1]}
    stored = {key: np.array(value, float) for key, value in arrays.items()}
    stored[name] = np.abs(stored[name]).astype(kind) + np.array(2**53 + 1, kind)
    np.savez(path, **stored)
    with pytest.raises(FormatError, match=f"{name} has (numbers that float64|type .*128)"):
        load(path)


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


def test_every_truncation_of_json_is_refused(tmp_path: Path) -> None:
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
def test_wrong_json_is_refused_with_a_reason(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    assert reason in refuse(tmp_path / "net.json", json.dumps(tree(**changes)))


def test_null_is_not_a_number(tmp_path: Path) -> None:
    text = json.dumps(tree(W0=[[1, 7], [1, 1]])).replace("7", "null")
    assert "W0: not a rectangular array of numbers" in refuse(tmp_path / "net.json", text)


def with_steps(**changes: Any) -> dict[str, Any]:
    """Return the arrays of a network whose output has batch normalisation and a factor."""
    steps: dict[str, Any] = {"F2_0_normalise": np.ones((5, 2)), "F2_1_scale": np.ones(2)}
    return arrays(**({"b2": None} | steps | changes))


def test_steps_stand_for_a_bias() -> None:
    described = read_npz(as_bytes(**with_steps()), "x")
    assert [type(step).__name__ for step in described.stages[2].steps] == ["Normalise", "Scale"]
    assert described.stages[2].bias is None and described.stages[1].bias is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"b2": np.zeros(2)}, "layer 2 has b2 and steps; expected one"),
        ({"F2_0_normalise": None}, "the steps of layer 2 are numbered 1; expected 0, 1, .."),
        ({"F2_1_shift": np.ones(2)}, "not a step of its own of a known kind"),
        ({"F2_2_root": np.ones(2)}, "F2_2_root: not a step of its own of a known kind"),
        ({"F2_1_scale": np.ones(3)}, "F2_1_scale has shape (3,); expected (2,)"),
        ({"F2_0_normalise": np.ones((4, 2))}, "F2_0_normalise has shape (4, 2); expected (5, 2)"),
        ({"F3_0_scale": np.ones(2)}, "unknown array F3_0_scale"),
        ({"F02_2_scale": np.ones(2)}, "unknown array F02_2_scale"),
    ],
)
def test_broken_steps_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=re.escape(message)):
        read_npz(as_bytes(**with_steps(**changes)), "x")


@pytest.mark.parametrize("broken", [np.full((5, 2), np.nan), -np.ones((5, 2))])
def test_steps_that_cannot_be_computed_are_refused(broken: Array, tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    path.write_bytes(as_bytes(**with_steps(F2_0_normalise=broken)))
    with pytest.raises(UnsupportedModelError, match=r"W2: (a parameter is NaN|batch norm)"):
        load(path)
