"""Checkpoints with their layers, also as .safetensors, and the quantisers of weights."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.errors import FormatError, MissingExtraError
from bnncert.model.formats.layer_chain import FileLayer
from bnncert.model.formats.torch.checkpoint import quantised
from tests.in_process import Capture, Outcome, command_line

torch = pytest.importorskip("torch", reason="needs the extra 'train'")
nn = torch.nn
from tests.model.formats.torch.models import (  # noqa: E402
    DENSE_LAYERS,
    Sign,
    compare,
    dense,
    images,
    write_layers,
)

IMAGE_LAYERS = {
    "input_shape": [1, 8, 8],
    "layers": [
        {"type": "conv2d", "weights": "0", "padding": "same"},
        {"type": "maxpool2d", "kernel_size": 3, "stride": 2, "padding": 1},
        {"type": "batchnorm", "weights": "2", "eps": 1e-3},
        {"type": "sign", "zero": "plus"},
        {"type": "conv2d", "weights": "4", "padding": [1, 0], "dilation": [2, 1], "groups": 2},
        {"type": "batchnorm", "weights": "5"},
        {"type": "sign", "zero": "plus"},
        {"type": "maxpool2d", "kernel_size": [3, 2], "ceil_mode": True},
        {"type": "flatten"},
        {"type": "linear", "weights": "10"},
        {"type": "softmax"},
    ],
}


def write_safetensors(path: Path, state: dict[str, Any]) -> Path:
    """Write the container by its definition: length, header, arrays."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in state.items():
        array = np.asarray(tensor)
        data = array.tobytes()
        kind = {"float32": "F32", "int64": "I64"}[str(array.dtype)]
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


@pytest.mark.parametrize(
    ("make", "tree"), [(dense, DENSE_LAYERS), (images, IMAGE_LAYERS)], ids=["dense", "images"]
)
def test_a_checkpoint_is_the_same_network(make: Any, tree: Any, tmp_path: Path) -> None:
    model = make()
    expected = bnncert.from_torch(model, tree["input_shape"]).content_hash
    layers = write_layers(tmp_path / "layers.json", tree)
    torch.save(model.state_dict(), tmp_path / "net.pt")
    torch.save(
        {"epoch": 3, "state_dict": model.state_dict()},
        tmp_path / "old.pth",
        _use_new_zipfile_serialization=False,
    )
    write_safetensors(tmp_path / "net.safetensors", model.state_dict())
    for name in ("net.pt", "old.pth", "net.safetensors"):
        assert bnncert.load(tmp_path / name, layers).content_hash == expected, name
    compare(bnncert.load(tmp_path / "net.pt", layers), model)


def test_quantisers_of_a_checkpoint(tmp_path: Path) -> None:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 3))
    torch.save(model.state_dict(), tmp_path / "net.pt")
    tree = {
        "input_shape": [16],
        "input_lo": -1,
        "input_hi": 1,
        "layers": [
            {"type": "linear", "weights": "0", "quantizer": "sign"},
            {"type": "sign"},
            {"type": "linear", "weights": "1", "quantizer": "ternary:0.1"},
        ],
    }
    network = bnncert.load(tmp_path / "net.pt", write_layers(tmp_path / "layers.json", tree))
    np.testing.assert_array_equal(
        network.layers[0].weights.toarray(), np.sign(model[0].weight.detach().numpy())
    )
    latent = model[1].weight.detach().numpy()
    np.testing.assert_array_equal(network.output.weights, np.sign(latent) * (np.abs(latent) > 0.1))
    assert network.input_hi is not None and np.all(network.input_hi == 1)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Callable[..., Outcome]:
    return command_line(monkeypatch, capsys)


def test_convert_with_layers(tmp_path: Path, run: Callable[..., Outcome]) -> None:
    torch.manual_seed(8)
    model = nn.Sequential(nn.Linear(16, 8), Sign(), nn.Linear(8, 3))
    torch.save(model.state_dict(), tmp_path / "net.pt")
    tree = {
        "input_shape": [16],
        "layers": [
            {"type": "linear", "weights": "0", "quantizer": "sign"},
            {"type": "sign", "zero": "plus"},
            {"type": "linear", "weights": "2"},
        ],
    }
    layers = write_layers(tmp_path / "l.json", tree)
    done = run("convert", tmp_path / "net.pt", tmp_path / "net.npz", "--layers", layers)
    assert done.code == 0, done.err
    expected = bnncert.load(tmp_path / "net.pt", layers).content_hash
    assert bnncert.load(tmp_path / "net.npz").content_hash == expected
    # A file beside the checkpoint needs no option, in any command.
    layers.rename(tmp_path / "net.layers.json")
    assert bnncert.load(tmp_path / "net.pt").content_hash == expected
    done = run("convert", tmp_path / "net.npz", tmp_path / "x.json", "--layers", "l.json")
    assert done.code == 2
    assert "net.npz: neither a PyTorch checkpoint nor weights of Keras" in done.err


def test_a_checkpoint_without_layers_says_what_is_needed(
    tmp_path: Path, run: Callable[..., Outcome]
) -> None:
    torch.save(dense().state_dict(), tmp_path / "net.pt")
    done = run("info", tmp_path / "net.pt")
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert f"{tmp_path / 'net.pt'}: a PyTorch checkpoint has weights only" in line
    assert "net.layers.json" in line and "--layers" in line


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = dense().state_dict()
    torch.save(state, tmp_path / "net.pt")
    write_safetensors(tmp_path / "net.safetensors", state)
    layers = write_layers(tmp_path / "layers.json", DENSE_LAYERS)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"bnncert\[train\]"):
        bnncert.load(tmp_path / "net.pt", layers)
    # This container needs nothing.
    assert bnncert.load(tmp_path / "net.safetensors", layers).inputs == 16


class Trap:
    """An object whose reading would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("old", [True, False])
def test_no_code_of_a_checkpoint_is_run(old: bool, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    content = {"0.weight": torch.ones(2, 2), "extra": Trap(trace)}
    torch.save(content, tmp_path / "net.pt", _use_new_zipfile_serialization=not old)
    layers = write_layers(tmp_path / "layers.json", DENSE_LAYERS)
    with pytest.raises(FormatError, match="objects other than tensors"):
        bnncert.load(tmp_path / "net.pt", layers)
    assert not trace.exists()
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Trap(trace)))
    with pytest.raises(FormatError, match=r"raw\.pt: "):
        bnncert.load(tmp_path / "raw.pt", layers)
    assert not trace.exists()


def damaged_layers(**changes: Any) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(json.dumps(DENSE_LAYERS))
    for key, value in changes.items():
        if key[5:].isdigit():
            tree["layers"][int(key[5:])] = value
        else:
            tree[key] = value
    return tree


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ([], "layers.json: expected a JSON object"),
        (damaged_layers(layers=[]), "layers.json: layers is missing or not a list"),
        (damaged_layers(input_shape="16"), "layers.json: input_shape is missing or not a list"),
        (damaged_layers(input_shape=[0]), "input_shape [0]; expected positive integers"),
        (damaged_layers(input_lo="low"), "input_lo is not a number"),
        (damaged_layers(extra=1), "unknown key extra"),
        (damaged_layers(layer0={"type": "relu"}), "layers.json: layer 0 has type 'relu'; expected"),
        (damaged_layers(layer0="linear"), "layers.json: layer 0 has type None"),
        (damaged_layers(layer0={"type": "linear"}), 'layer 0 (linear): expected "weights"'),
        (
            damaged_layers(layer3={"type": "sign", "weights": "a"}),
            "layer 3 (sign): expected no weights",
        ),
        (
            damaged_layers(layer0={"type": "linear", "weights": "0", "quantiser": "sign"}),
            "layer 0 (linear): unknown option quantiser",
        ),
        (
            damaged_layers(layer0={"type": "linear", "weights": "0", "quantizer": 1}),
            "net.pt: layer 0 (linear): quantizer 1",
        ),
        (
            damaged_layers(layer0={"type": "linear", "weights": "x"}),
            "net.pt: layer x (linear): the checkpoint has no x.weight",
        ),
        (damaged_layers(layer5={"type": "identity"}), "layers.json: no layer uses 4.1.weight of"),
        (damaged_layers(layer3={"type": "sign", "zero": 0}), "zero 0; expected plus, minus"),
        (
            damaged_layers(layer1={"type": "batchnorm", "weights": "1", "eps": "x"}),
            "net.pt: layer 1 (batchnorm): eps 'x'",
        ),
        (damaged_layers(layer2={"type": "maxpool2d"}), "net.pt: layer 2 (maxpool2d): malformed"),
    ],
)
def test_refused_layer_files(tree: Any, expected: str, tmp_path: Path) -> None:
    torch.save(dense().state_dict(), tmp_path / "net.pt")
    layers = write_layers(tmp_path / "layers.json", tree)
    with pytest.raises(FormatError) as caught:
        bnncert.load(tmp_path / "net.pt", layers)
    assert expected in str(caught.value)
    assert str(caught.value).isprintable()


def test_layer_file_that_is_not_json(tmp_path: Path) -> None:
    torch.save(dense().state_dict(), tmp_path / "net.pt")
    (tmp_path / "layers.json").write_text('{"layers":\n nothing}')
    with pytest.raises(FormatError, match=r"layers\.json:2: not valid JSON"):
        bnncert.load(tmp_path / "net.pt", tmp_path / "layers.json")
    with pytest.raises(FormatError, match=r"none\.json: no such file"):
        bnncert.load(tmp_path / "net.pt", tmp_path / "none.json")


def test_truncated_checkpoints(tmp_path: Path) -> None:
    state = dense().state_dict()
    layers = write_layers(tmp_path / "layers.json", DENSE_LAYERS)
    torch.save(state, tmp_path / "net.pt")
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    write_safetensors(tmp_path / "net.safetensors", state)
    for name in ("net.pt", "old.pt", "net.safetensors"):
        content = (tmp_path / name).read_bytes()
        path = tmp_path / f"cut{Path(name).suffix}"
        for length in range(1, len(content), max(1, len(content) // 7)):
            path.write_bytes(content[:length])
            with pytest.raises(FormatError) as caught:
                bnncert.load(path, layers)
            assert str(caught.value).startswith(f"{path}: ")
            assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (torch.ones(3), "expected a state dict"),
        ({"epoch": 3}, "epoch is not a tensor"),
        ({"0.weight": torch.ones(8, 16, dtype=torch.bfloat16)}, "its weight is not a plain tensor"),
        ({"0.weight": torch.ones(8, 16).to_sparse()}, "its weight is not a plain tensor"),
        ({"0.weight": torch.full((8, 16), float("nan"))}, "the checkpoint has no 1.running_mean"),
    ],
)
def test_refused_states(state: Any, expected: str, tmp_path: Path) -> None:
    torch.save(state, tmp_path / "net.pt")
    layers = write_layers(tmp_path / "layers.json", DENSE_LAYERS)
    with pytest.raises(FormatError) as caught:
        bnncert.load(tmp_path / "net.pt", layers)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"[1]", "the header is not a JSON object"),
        (b"{", "the header:1: not valid JSON"),
        (b'{"a": 3}', "tensor a: malformed"),
        (b'{"a": {"dtype": "F8", "shape": [1], "data_offsets": [0, 4]}}', "type F8; expected F64"),
        (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 40]}}', "outside the file"),
        (b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}', "tensor a: malformed"),
    ],
)
def test_refused_safetensors(header: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    layers = write_layers(tmp_path / "layers.json", DENSE_LAYERS)
    with pytest.raises(FormatError, match=r"net\.safetensors: ") as caught:
        bnncert.load(path, layers)
    assert expected in str(caught.value)


LAYER = FileLayer("net.pt", "fc1", "linear")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_ternary_quantiser(kind: type) -> None:
    edge = np.float32(0.05)
    above, below = np.nextafter(edge, np.float32(1)), np.nextafter(edge, np.float32(0))
    weights: Any = np.array([[above, below, -above, -below, 0.0, 1.0]]).astype(kind)
    assert quantised(weights, "ternary:0.05", LAYER).tolist() == [[1, 0, -1, 0, 0, 1]]


@pytest.mark.parametrize(
    ("weight", "quantizer"),
    [
        (np.float32(0.0), "sign"),
        (np.float32(-1e-40), "sign"),
        (np.float32(0.05), "ternary:0.05"),
        (-np.float32(0.05), "ternary:0.05"),
        (np.float64(0.05), "ternary:0.05"),
        # float32(0.05) is above 0.05: between the two it depends on the trainer's arithmetic.
        (np.float64(0.0500000005), "ternary:0.05"),
    ],
)
def test_weights_that_trainers_treat_differently(weight: Any, quantizer: str) -> None:
    with pytest.raises(FormatError, match="not the same in all trainers"):
        quantised(np.array([[1.0, weight]], dtype=weight.dtype), quantizer, LAYER)
