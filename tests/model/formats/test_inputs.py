"""Points from arrays and images, and every way in which they can be wrong."""

from __future__ import annotations

import importlib.util
import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from bnncert.errors import FormatError, MissingExtraError
from bnncert.model.formats.inputs import pick_point, read_array


def refuse(text: str | Path) -> str:
    """Check that reading is a FormatError of one line that names the file."""
    with pytest.raises(FormatError) as caught:
        read_array(str(text))
    message = str(caught.value)
    assert "\n" not in message
    assert Path(str(text).partition(":")[0]).name in message
    return message


def point(
    array: npt.ArrayLike,
    shape: tuple[int, ...],
    index: int | None = None,
    box: tuple[float, float] | None = None,
    dtype: Any = np.float64,
) -> list[float]:
    size = int(np.prod(shape))
    bounds = None if box is None else (np.full(size, box[0]), np.full(size, box[1]))
    picked: list[float] = pick_point(
        np.asarray(array, dtype=dtype), index, shape, bounds, "x.npy"
    ).tolist()
    return picked


# --- reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int64])
def test_npy_files_keep_type_and_shape(tmp_path: Path, dtype: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    np.save(tmp_path / "x.npy", array)
    loaded = read_array(str(tmp_path / "x.npy"))
    assert loaded.dtype == dtype
    np.testing.assert_array_equal(loaded, array)


def test_npz_files_are_asked_for_a_key(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.ones(2), b=np.zeros(3))
    assert read_array(f"{path}:b").tolist() == [0, 0, 0]
    assert "a, b" in refuse(path)
    assert "'c'" in refuse(f"{path}:c")
    np.savez(path, only=np.ones(2))
    assert read_array(str(path)).tolist() == [1, 1]


def test_a_key_for_an_npy_file_is_no_such_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(2))
    assert "no such file" in refuse(f"{tmp_path / 'x.npy'}:a")


def test_images_are_read_as_bytes(tmp_path: Path) -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    colour = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
    for suffix in ("png", "bmp", "tif"):
        Image.fromarray(grey).save(tmp_path / f"grey.{suffix}")
        Image.fromarray(colour).save(tmp_path / f"colour.{suffix}")
        np.testing.assert_array_equal(read_array(str(tmp_path / f"grey.{suffix}")), grey)
        np.testing.assert_array_equal(read_array(str(tmp_path / f"colour.{suffix}")), colour)


def test_an_image_drops_its_transparency(tmp_path: Path) -> None:
    pixels = np.arange(16, dtype=np.uint8).reshape(2, 2, 4)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    np.testing.assert_array_equal(read_array(str(tmp_path / "x.png")), pixels[:, :, :3])


def test_an_image_with_two_bytes_a_pixel_is_refused_and_not_clipped(tmp_path: Path) -> None:
    deep = np.array([[0, 300], [40000, 65535]], dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    assert "one byte" in refuse(tmp_path / "deep.png")
    Image.fromarray(np.array([[0.25, 0.5]], dtype=np.float32)).save(tmp_path / "real.tif")
    assert "one byte" in refuse(tmp_path / "real.tif")


def test_images_need_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    with pytest.raises(MissingExtraError, match=r"x\.jpg.*pip install 'bnncert\[images\]'"):
        read_array(str(tmp_path / "x.jpg"))


# --- broken files ----------------------------------------------------------------------------


def npy_with(header: str) -> bytes:
    """Return an .npy file of version 1 with a header of one's own, and 16 bytes of data."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(16)


BROKEN = {
    "empty": b"",
    "text": b"1.0 2.0\n",
    "unclosed header": npy_with("{'descr': '<f8', 'fortran_order': False, 'shape': (2,"),
    "header of another kind": npy_with("{'descr': '<f8', 1: 2, 'shape': (2,)}"),
    "no dictionary": npy_with("[1, 2]"),
    "too little data": npy_with("{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}"),
    "far too little data": npy_with(
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,)}"
    ),
    "negative shape": npy_with("{'descr': '<f8', 'fortran_order': False, 'shape': (-2,)}"),
    "objects": npy_with("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_npy_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.npy").write_bytes(BROKEN[name])
    refuse(tmp_path / "x.npy")


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    refuse(tmp_path / "x.npy")


def test_broken_npz_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    buffer = io.BytesIO()
    np.savez(buffer, a=np.arange(40.0))
    whole = buffer.getvalue()
    path.write_bytes(whole[: len(whole) // 2])
    refuse(path)
    # The flag of an encrypted member, in both places where a zip archive keeps it.
    encrypted = bytearray(whole)
    encrypted[6] |= 1
    encrypted[whole.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(encrypted))
    refuse(f"{path}:a")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    path.write_bytes(bytes(damaged))
    refuse(f"{path}:a")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", b"no array")
    refuse(f"{path}:a")


def test_flipped_bytes_never_escape_as_another_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", np.arange(6.0))
    np.savez(tmp_path / "x.npz", a=np.arange(6.0))
    Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)).save(tmp_path / "x.png")
    Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)).save(tmp_path / "x.bmp")
    refused = 0
    for name in ("x.npy", "x.npz", "x.png", "x.bmp"):
        whole = (tmp_path / name).read_bytes()
        for _ in range(150):
            content = bytearray(whole)
            for place in rng.integers(len(content), size=2).tolist():
                content[place] = int(rng.integers(256))
            (tmp_path / name).write_bytes(content)
            try:
                read_array(str(tmp_path / name))
            except FormatError:
                refused += 1
    assert refused >= 50


@pytest.mark.parametrize("suffix", ["npy", "npz", "png", "jpg"])
def test_missing_files_and_folders_are_refused(tmp_path: Path, suffix: str) -> None:
    assert "no such file" in refuse(tmp_path / f"missing.{suffix}")
    (tmp_path / f"folder.{suffix}").mkdir()
    refuse(tmp_path / f"folder.{suffix}")


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array([True])])
def test_what_is_no_real_number_is_refused(tmp_path: Path, array: npt.NDArray[Any]) -> None:
    np.save(tmp_path / "x.npy", array)
    assert str(array.dtype) in refuse(tmp_path / "x.npy")


# --- picking a point -------------------------------------------------------------------------


def test_a_single_point_may_have_any_shape_of_its_size() -> None:
    for array in ([1, 2, 3, 4], [[1, 2], [3, 4]], [[[1, 2], [3, 4]]], [[1, 2, 3, 4]]):
        assert point(array, (2, 2)) == [1, 2, 3, 4]
        assert point(array, (2, 2), index=0) == [1, 2, 3, 4]
        with pytest.raises(FormatError, match=r"x\.npy.*index 1|x\.npy.*single"):
            point(array, (2, 2), index=1)


def test_a_batch_is_picked_from() -> None:
    batch = np.arange(12).reshape(3, 2, 2)
    assert point(batch, (2, 2), index=2) == [8, 9, 10, 11]
    assert point(batch.reshape(3, 4), (2, 2), index=1) == [4, 5, 6, 7]
    for index in (3, -1):
        with pytest.raises(FormatError, match=rf"x\.npy: index {index}; it holds points 0 to 2"):
            point(batch, (2, 2), index=index)


def test_another_size_is_refused_with_both_shapes() -> None:
    with pytest.raises(FormatError, match=r"x\.npy: shape \(5,\).*4 values \(shape \(2, 2\)\)"):
        point(np.zeros(5), (2, 2))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_with_their_place(bad: float) -> None:
    with pytest.raises(FormatError, match=r"x\.npy: value 2 is"):
        point([0.0, 1.0, bad, bad], (4,))
    # Elsewhere in the batch they do no harm.
    assert point([[0.0, 1.0], [bad, bad]], (2,), index=0) == [0.0, 1.0]


def test_colour_channels_move_to_where_the_network_has_them() -> None:
    image = np.arange(12).reshape(2, 2, 3)
    flat = [float(v) for v in range(12)]
    assert point(image, (3, 2, 2)) == [*flat[0::3], *flat[1::3], *flat[2::3]]
    assert point(image, (2, 2, 3)) == flat
    batch = np.stack([image, image + 12])
    assert point(batch, (3, 2, 2), index=1)[:2] == [12, 15]


def test_bytes_are_scaled_to_the_data_box() -> None:
    pixels = [0, 51, 255]
    assert point(pixels, (3,), box=(-1.0, 1.0), dtype=np.uint8) == pytest.approx([-1, -0.6, 1])
    assert point(pixels, (3,), box=(0.0, 1.0), dtype=np.uint8) == pytest.approx([0, 0.2, 1])
    assert point(pixels, (3,), box=(0.0, 255.0), dtype=np.uint8) == [0, 51, 255]
    with pytest.raises(FormatError, match=r"x.npy: holds pixels \(uint8\).*--scale.*--normalise"):
        point(pixels, (3,), dtype=np.uint8)
    # Only bytes are pixels.
    assert point(pixels, (3,), box=(-1.0, 1.0), dtype=np.int64) == [0, 51, 255]


def test_scaled_bytes_never_leave_the_data_box() -> None:
    lo, hi = -0.4242129623889923, 2.8214867115020752
    scaled = point(np.arange(256), (256,), box=(lo, hi), dtype=np.uint8)
    assert min(scaled) == lo
    assert max(scaled) == hi
    assert scaled == sorted(scaled)


@pytest.mark.parametrize("batch", [None, 1, 2])
@pytest.mark.parametrize("is_first", [True, False])
def test_channels_move_in_both_directions_and_in_a_batch_of_one(
    batch: int | None, is_first: bool
) -> None:
    last = np.arange(24.0).reshape(2, 4, 3)
    first = np.moveaxis(last, -1, 0)
    wanted, given = (first, last) if is_first else (last, first)
    array = given if batch is None else np.stack([given] * batch)
    for index in (None, 0) if batch != 2 else (0, 1):
        point = pick_point(array, index, wanted.shape, None, "x")
        np.testing.assert_array_equal(point, wanted.reshape(-1))


def test_tables_of_numbers_are_points(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    for text in ("1,-0.5\n2,3e-1\n", "a;b\n1;-0.5\n2;0.3\n\n", "\ufeff1\t-.5\r\n2\t.3\r\n"):
        file.write_bytes(text.encode())
        assert read_array(str(file)).tolist() == [[1.0, -0.5], [2.0, 0.3]]
    file.write_text("1 2 3\n")
    assert read_array(str(file)).tolist() == [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a table without numbers"),
        ("a,b\n", "a table without numbers"),
        ("1,2\n3,x\n", "could not convert string 'x' to float64 at row"),
        ("1,2\n3\n", "the number of columns changed from 2 to 1 at row"),
    ],
)
def test_broken_tables(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    assert why in refuse(tmp_path / "x.csv")


def test_what_is_no_array_names_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "expected .npy, .npz, .csv, IDX or an image" in refuse(tmp_path / "notes.txt")
    np.save(tmp_path / "none.npy", np.zeros((0, 4)))
    assert "an empty array, of shape (0, 4); expected points" in refuse(tmp_path / "none.npy")
