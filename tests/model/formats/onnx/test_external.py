"""Tensors in files beside an ONNX model: as PyTorch writes them, and as nobody should."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bnncert.engine.replay import OnnxRuntime
from bnncert.errors import BnncertError
from bnncert.model.formats.file_content import Limits
from bnncert.model.loading import load
from tests.data.make_larq_fixtures import FOLDER, inputs
from tests.model.formats.onnx_sketch import Sketch, signs


def _model(width: int = 4) -> ModelProto:
    rng = np.random.default_rng(1)
    sketch = Sketch(1, width).then("MatMul", signs(rng, width, 3)).then("Sign")
    return sketch.then("MatMul", signs(rng, 3, 2)).model()


def _written(folder: Path, model: ModelProto | None = None, **stated: Any) -> Path:
    """Write a model whose first tensor is in another file; `stated` replaces what is said of it."""
    model = _model() if model is None else model
    tensor = model.graph.initializer[0]
    content = numpy_helper.to_array(tensor).tobytes()
    (folder / "net.onnx.data").write_bytes(b"\1" * 64 + content)
    entries = {"location": "net.onnx.data", "offset": "64", "length": str(len(content)), **stated}
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _refused(path: Path, **options: Any) -> str:
    with pytest.raises(BnncertError) as caught:
        load(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_model_of_the_current_pytorch() -> None:
    network = load(FOLDER / "torch_dense.onnx")
    assert (FOLDER / "torch_dense.onnx.data").stat().st_size > 0
    assert network.sizes == (16, 8, 8, 3)
    with np.load(FOLDER / "torch_scores.npz") as stored:
        expected = stored["dense"]
    assert len(set(expected.argmax(axis=1))) > 1
    np.testing.assert_allclose(network.evaluate(inputs((16,))), expected, rtol=0, atol=1e-5)


def test_onnxruntime_executes_it_as_it_was_read() -> None:
    network = load(FOLDER / "torch_dense.onnx")
    runtime = OnnxRuntime.of(network)
    assert runtime is not None
    for point in inputs((16,))[:20]:
        scores = runtime.scores(point.astype(np.float64))
        np.testing.assert_allclose(scores, network.evaluate(point), rtol=0, atol=1e-5)


def test_the_network_is_that_of_one_file(tmp_path: Path) -> None:
    whole = tmp_path / "whole.onnx"
    whole.write_bytes(_model().SerializeToString())
    path = _written(tmp_path)
    assert load(path).content_hash == load(whole).content_hash
    packed = tmp_path / "net.onnx.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert load(packed).content_hash == load(whole).content_hash


def test_what_onnx_itself_writes(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(_model(), str(path), save_as_external_data=True, size_threshold=0, location="w.bin")
    whole = tmp_path / "whole.onnx"
    whole.write_bytes(_model().SerializeToString())
    assert (tmp_path / "w.bin").exists()
    assert load(path).content_hash == load(whole).content_hash


def test_a_constant_of_a_node_and_a_folder_below(tmp_path: Path) -> None:
    model = _model()
    tensor = model.graph.initializer[0]
    whole = tmp_path / "whole.onnx"
    whole.write_bytes(model.SerializeToString())
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.bin").write_bytes(numpy_helper.to_array(tensor).tobytes())
    outside = TensorProto()
    outside.CopyFrom(tensor)
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="weights/w.bin")
    del model.graph.initializer[0]
    model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=outside))
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    assert load(path).content_hash == load(whole).content_hash


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "absolute": ({"location": "/etc/hostname"}, "only files in the folder of the model"),
    "above": ({"location": "../net.onnx.data"}, "only files in the folder of the model"),
    "above, later": ({"location": "a/../../b"}, "only files in the folder of the model"),
    "windows": ({"location": "C:\\w.bin"}, "only files in the folder of the model"),
    "windows above": ({"location": "..\\w.bin"}, "only files in the folder of the model"),
    "nowhere": ({"location": None}, "no location"),
    "folder": ({"location": "."}, "is a directory"),
    "missing": ({"location": "other.data"}, "other.data: no such file; it has the weights of"),
    "offset": ({"offset": "-1"}, "offset '-1' of its external data is not a number of bytes"),
    "offset behind": ({"offset": "100"}, "net.onnx.data, which has 112; the file is truncated"),
    "huge offset": ({"offset": "9" * 40}, "is not a number of bytes"),
    "length": ({"length": "12"}, "12 bytes of external data; its shape and type need 48"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_place_is_refused(case: str, tmp_path: Path) -> None:
    stated, expected = CASES[case]
    message = _refused(_written(tmp_path, **stated))
    assert expected in message
    assert str(tmp_path) in message


def _truncate(folder: Path) -> None:
    with (folder / "net.onnx.data").open("r+b") as file:
        file.truncate(70)


def _remove(folder: Path) -> None:
    (folder / "net.onnx.data").unlink()


def _link_out(folder: Path) -> None:
    shutil.move(folder / "net.onnx.data", folder.parent / "elsewhere.data")
    (folder / "net.onnx.data").symlink_to(folder.parent / "elsewhere.data")


def _link_loop(folder: Path) -> None:
    _remove(folder)
    (folder / "net.onnx.data").symlink_to("net.onnx.data")


def _pipe(folder: Path) -> None:
    _remove(folder)
    os.mkfifo(folder / "net.onnx.data")


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (_truncate, "needs the bytes 64 to 112 of"),
    "missing": (_remove, "net.onnx.data: no such file"),
    "link out of the folder": (_link_out, "a link that leads out of the folder of the model"),
    "link to itself": (_link_loop, "net.onnx.data"),
    "pipe": (_pipe, "net.onnx.data: is not a regular file"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_wrong_file_is_refused(case: str, tmp_path: Path) -> None:
    change, expected = FILES[case]
    folder = tmp_path / "model"
    folder.mkdir()
    path = _written(folder)
    change(folder)
    assert expected in _refused(path)


def test_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    path = _written(tmp_path)
    expected = load(path).content_hash
    shutil.move(tmp_path / "net.onnx.data", tmp_path / "blob")
    (tmp_path / "net.onnx.data").symlink_to("blob")
    assert load(path).content_hash == expected
    # The folder itself may be a link.
    (tmp_path / "folder").symlink_to(tmp_path)
    assert load(tmp_path / "folder" / "net.onnx").content_hash == expected


def test_the_limit_counts_shared_bytes_twice(tmp_path: Path) -> None:
    path = _written(tmp_path, _model(100))
    model = onnx.load(str(path), load_external_data=False)
    again = model.graph.initializer.add()
    again.CopyFrom(model.graph.initializer[0])
    again.name = "again"
    path.write_bytes(model.SerializeToString())
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert "Limits.file" in _refused(path, limits=Limits(file=max(sizes)))
    assert load(path, limits=Limits(file=2 * 1200)).inputs == 100


def test_entries_are_checked(tmp_path: Path) -> None:
    path = _written(tmp_path)
    model = onnx.load(str(path), load_external_data=False)
    model.graph.initializer[0].external_data.add(key="offset", value="0")
    path.write_bytes(model.SerializeToString())
    assert "two entries offset" in _refused(path)
