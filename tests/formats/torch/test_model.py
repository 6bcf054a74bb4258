"""PyTorch models and checkpoints: against torch itself, and everything that is refused."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bnncert
from bnncert.errors import FormatError, InputError, MissingExtraError
from bnncert.formats.layer_chain import FileLayer
from bnncert.formats.torch.layers import quantised
from tests.data.make_larq_fixtures import inputs

torch = pytest.importorskip("torch", reason="needs the extra 'train'")
nn = torch.nn
LAYER = FileLayer("net.pt", "fc1", "linear")


class Sign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return torch.where(x >= 0, 1.0, -1.0)


class StrictSign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return torch.where(x > 0, 1.0, -1.0)


class Binarize(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return torch.sign(x)


class BinaryLinear(nn.Linear):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, torch.sign(self.weight), self.bias)


class TernaryConv(nn.Conv2d):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        kernel = torch.sign(self.weight) * (self.weight.abs() > 0.1)
        return nn.functional.conv2d(
            x, kernel, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class SigningLinear(nn.Linear):  # type: ignore[name-defined,misc]
    """Takes the signs of its input as well, as many binary layers do."""

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(torch.sign(x), torch.sign(self.weight), self.bias)


def prepared(model: Any, *, signs: bool = True) -> Any:
    """Return the model in evaluation mode, with random statistics and ternary weights."""
    made = torch.Generator().manual_seed(5)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_(0, 0.5, generator=made)
            module.running_var.uniform_(0.1, 2.0, generator=made)
            if module.affine:
                module.weight.data.normal_(0, 1, generator=made)
                module.bias.data.normal_(0, 0.5, generator=made)
        elif signs and type(module) in (nn.Linear, nn.Conv2d):
            module.weight.data = torch.randint(-1, 2, module.weight.shape, generator=made).float()
    return model.eval()


def dense() -> Any:
    return prepared(
        nn.Sequential(
            nn.Linear(16, 8),
            nn.BatchNorm1d(8),
            nn.Hardtanh(),
            Sign(),
            nn.Sequential(nn.Dropout(0.3), nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8)),
            Sign(),
            nn.Linear(8, 3),
        )
    )


def images() -> Any:
    model = prepared(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding="same", bias=False),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.BatchNorm2d(4, eps=1e-3, affine=False),
            Sign(),
            nn.Conv2d(4, 24, (2, 3), padding=(1, 0), dilation=(2, 1), groups=2),
            nn.BatchNorm2d(24),
            Sign(),
            nn.MaxPool2d((3, 2), ceil_mode=True),
            nn.Identity(),
            nn.Flatten(),
            nn.Linear(48, 3),
            nn.LogSoftmax(dim=1),
        )
    )
    # The maxima of nine sums are about two: otherwise their signs never change.
    model[2].running_mean.add_(2.0)
    return model


def scores_of(model: Any, points: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    layers = list(model)
    if isinstance(layers[-1], (nn.LogSoftmax, nn.Softmax)):
        layers.pop()
    with torch.no_grad():
        scores = nn.Sequential(*layers).eval()(torch.from_numpy(points)).numpy()
    return np.asarray(scores, dtype=np.float64)


def compare(network: bnncert.Network, model: Any) -> None:
    points = inputs(network.input_shape)
    expected = scores_of(model, points)
    scores = network.evaluate(points)
    assert len(np.unique(expected, axis=0)) > 20
    assert len(set(expected.argmax(axis=1))) > 1
    np.testing.assert_array_equal(scores.argmax(axis=1), expected.argmax(axis=1))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=4e-6)


# -- models in memory -------------------------------------------------------------------------


def test_a_dense_model_agrees_with_torch() -> None:
    model = dense()
    network = bnncert.from_torch(model, (16,), input_lo=-1, input_hi=1)
    assert network.sizes == (16, 8, 8, 3)
    assert network.sign_zero == "plus"
    assert network.input_lo is not None and np.all(network.input_lo == -1)
    compare(network, model)


def test_a_convolutional_model_agrees_with_torch() -> None:
    model = images()
    network = bnncert.from_torch(model, (1, 8, 8))
    # Windows of 3 at stride 2 over 8 cells and one of padding: 2 + 3 + 3 + 3 cells; then 4 x 4
    # windows, a convolution to 4 x 2, and pooling with rounding up to 2 x 1.
    assert network.sizes == (64, 11 * 11 * 4, 4 * 4 * 4, 4 * 2 * 24, 2 * 1 * 24, 3)
    assert network.output_transform == "softmax"
    compare(network, model)


def test_training_mode_does_not_matter_and_is_kept() -> None:
    model = dense()
    expected = bnncert.from_torch(model, (16,)).content_hash
    model.train()
    assert bnncert.from_torch(model, (16,)).content_hash == expected
    assert all(module.training for module in model.modules())


def test_classes_with_roles_and_quantisers() -> None:
    torch.manual_seed(1)
    model = prepared(
        nn.Sequential(
            TernaryConv(1, 4, 3, stride=2),
            nn.BatchNorm2d(4),
            StrictSign(),
            nn.Flatten(),
            BinaryLinear(36, 8),
            Binarize(),
            BinaryLinear(8, 3),
        ),
        signs=False,
    )
    roles: dict[Any, str] = {TernaryConv: "conv2d", BinaryLinear: "linear", StrictSign: "sign"}
    weights = {"0": "ternary:0.1", "4": "sign", "6": "sign"}
    network = bnncert.from_torch(model, (1, 8, 8), roles=roles, weights=weights)
    assert [layer.sign_zero for layer in network.layers] == ["minus", "plus"]
    # torch.sign(0) is 0, so the file does not say which of the signs is meant.
    assert [layer.fixed_sign_zero for layer in network.layers] == [True, False]
    compare(network, model)


def test_one_quantiser_for_all_layers() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(16, 8), Sign(), nn.Linear(8, 3))
    network = bnncert.from_torch(model, (16,), weights="sign")
    for module in (model[0], model[2]):
        module.weight.data = torch.sign(module.weight.data)
    compare(network, model)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_epsilon_has_the_type_of_the_statistics(kind: Any) -> None:
    norm = nn.BatchNorm1d(1, eps=0.1).to(kind)
    norm.running_var.zero_()
    norm.bias.data.fill_(1.0)
    last = nn.Linear(1, 1, bias=False)
    last.weight.data.fill_(1.0)
    network = bnncert.from_torch(nn.Sequential(norm, Sign(), last), (1,))
    # The threshold is -sqrt(epsilon): float32(0.1) is larger than 0.1 by 1.5e-9.
    epsilon = float(np.float32(0.1)) if kind == torch.float32 else 0.1
    for distance in (1e-12, -1e-12):
        value = network.evaluate(np.array([distance - np.sqrt(epsilon)]))
        assert value == np.sign(distance)


def test_the_sign_of_zero_is_what_the_module_returns() -> None:
    weight = torch.tensor([[1.0, 1.0]])
    for module, expected in ((Sign(), 1), (StrictSign(), -1)):
        first, last = nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False)
        first.weight.data, last.weight.data = weight, torch.tensor([[1.0], [0.0]])
        model = nn.Sequential(first, module, last)
        network = bnncert.from_torch(model, (2,), roles={StrictSign: "sign"})
        point = np.array([1.0, -1.0])
        assert network.evaluate_exactly(point) == [Fraction(expected), Fraction(0)]
        assert model(torch.tensor([[1.0, -1.0]])).tolist() == [[expected, 0.0]]
    chosen = bnncert.from_torch(model, (2,), roles={StrictSign: "sign"}, sign_zero="either")
    assert chosen.sign_zero == "either"


def linear(*sizes: int) -> Any:
    return nn.Linear(*sizes)


class NotSign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return torch.tanh(x)


class Failing(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        raise RuntimeError("no")


def _hooked() -> Any:
    module = nn.Linear(4, 3)
    module.register_forward_hook(lambda *_: None)
    return module


@pytest.mark.parametrize(
    ("modules", "options", "expected"),
    [
        ([nn.ReLU()], {}, "layer 0 (ReLU): this module is not supported in a binary network"),
        ([BinaryLinear(4, 3)], {}, "layer 0 (BinaryLinear): this module is not part"),
        (
            [BinaryLinear(4, 3)],
            {"roles": {BinaryLinear: "linear"}},
            "layer 0 (linear): BinaryLinear may quantise its weights: say how",
        ),
        (
            [BinaryLinear(4, 3)],
            {"roles": {BinaryLinear: "linear"}, "weights": "as stored"},
            'BinaryLinear does not compute what its weights with the quantiser "as stored" say',
        ),
        (
            [SigningLinear(4, 3)],
            {"roles": {SigningLinear: "linear"}, "weights": "sign"},
            "SigningLinear does not compute what its weights",
        ),
        (
            [TernaryConv(4, 3, 2)],
            {"roles": {TernaryConv: "conv2d"}, "weights": "sign"},
            "TernaryConv does not compute what its weights",
        ),
        ([NotSign()], {"roles": {NotSign: "sign"}}, "NotSign is not the sign of its input"),
        ([Failing()], {"roles": {Failing: "sign"}}, "Failing cannot be applied to a tensor"),
        (
            [linear(4, 3)],
            {"roles": {Failing: "relu"}},
            "role 'relu'; expected sign, linear, conv2d",
        ),
        (
            [NotSign()],
            {"roles": {NotSign: "sign"}, "sign_zero": "plus"},
            "NotSign is not the sign of its input",
        ),
        ([linear(4, 3)], {"weights": {"7": "sign"}}, "weights for 7, which is not one of"),
        ([linear(4, 3)], {"weights": "signs"}, "quantizer 'signs'; expected \"sign\""),
        ([linear(4, 3)], {"weights": "ternary:x"}, "with a number T > 0"),
        ([linear(5, 3)], {}, "weight of shape (3, 5) on 4 inputs"),
        ([nn.BatchNorm1d(4, track_running_stats=False)], {}, "it has no running_mean"),
        ([nn.BatchNorm1d(3)], {}, "for 4 channels"),
        ([nn.Conv2d(1, 2, 2, padding_mode="reflect", padding=1)], {}, "padding mode reflect"),
        ([nn.MaxPool2d(2, return_indices=True)], {}, "it returns indices"),
        ([nn.MaxPool2d(2)], {}, "its input has shape (1, 4)"),
        ([nn.Flatten(2)], {}, "it flattens some axes only"),
        ([nn.Softmax(dim=0)], {}, "dim 0; expected 1"),
        ([nn.Hardtanh(0.0, 1.0)], {}, "clips to [0, 1], which changes the sign"),
        ([nn.Hardtanh(), linear(4, 3)], {}, "after a Clip only a sign is supported"),
        ([linear(4, 3).half()], {}, "its weight has type float16"),
        ([_hooked()], {}, "it has hooks"),
        ([linear(4, 3)], {}, "the model has no sign activation"),
    ],
)
def test_refused_modules(modules: list[Any], options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        bnncert.from_torch(nn.Sequential(*modules), (4,), **options)
    assert str(caught.value).startswith("<torch model>: ")
    assert expected in str(caught.value)
    assert str(caught.value).isprintable()


def test_only_sequential_models() -> None:
    with pytest.raises(InputError, match=r"Linear; expected a torch\.nn\.Sequential"):
        bnncert.from_torch(nn.Linear(2, 2), (2,))
    with pytest.raises(InputError, match="input shape"):
        bnncert.from_torch(dense(), (0,))


# -- quantisers -------------------------------------------------------------------------------


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


# -- checkpoints ------------------------------------------------------------------------------

DENSE_LAYERS = {
    "input_shape": [16],
    "layers": [
        {"type": "linear", "weights": "0"},
        {"type": "batchnorm", "weights": "1", "eps": 1e-5},
        {"type": "hardtanh"},
        {"type": "sign", "zero": "plus"},
        {"type": "dropout"},
        {"type": "linear", "weights": "4.1"},
        {"type": "batchnorm", "weights": "4.2"},
        {"type": "sign", "zero": "plus"},
        {"type": "linear", "weights": "6"},
    ],
}

IMAGE_LAYERS = {
    "input_shape": [1, 8, 8],
    "layers": [
        {"type": "conv2d", "weights": "0", "padding": "same"},
        {"type": "maxpool2d", "kernel_size": 3, "stride": 2, "padding": 1},
        {"type": "batchnorm", "weights": "2", "eps": 1e-3},
        {"type": "sign", "zero": "plus"},
        {
            "type": "conv2d",
            "weights": "4",
            "padding": [1, 0],
            "dilation": [2, 1],
            "groups": 2,
        },
        {"type": "batchnorm", "weights": "5"},
        {"type": "sign", "zero": "plus"},
        {"type": "maxpool2d", "kernel_size": [3, 2], "ceil_mode": True},
        {"type": "flatten"},
        {"type": "linear", "weights": "10"},
        {"type": "softmax"},
    ],
}


def write_layers(path: Path, tree: Any) -> Path:
    path.write_text(json.dumps(tree))
    return path


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


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bnncert", *arguments], capture_output=True, text=True, check=False
    )


def test_convert_with_layers(tmp_path: Path) -> None:
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
    done = run(
        "convert", str(tmp_path / "net.pt"), str(tmp_path / "net.npz"), "--layers", str(layers)
    )
    assert done.returncode == 0, done.stderr
    expected = bnncert.load(tmp_path / "net.pt", layers).content_hash
    assert bnncert.load(tmp_path / "net.npz").content_hash == expected
    # A file beside the checkpoint needs no option, in any command.
    layers.rename(tmp_path / "net.layers.json")
    assert bnncert.load(tmp_path / "net.pt").content_hash == expected
    done = run("convert", str(tmp_path / "net.npz"), str(tmp_path / "x.json"), "--layers", "l.json")
    assert done.returncode == 2
    assert "net.npz: not a PyTorch checkpoint" in done.stderr


def test_a_checkpoint_without_layers_says_what_is_needed(tmp_path: Path) -> None:
    torch.save(dense().state_dict(), tmp_path / "net.pt")
    done = run("info", str(tmp_path / "net.pt"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
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
        (
            damaged_layers(layer5={"type": "identity"}),
            "layers.json: no layer uses 4.1.weight of",
        ),
        (damaged_layers(layer3={"type": "sign", "zero": 0}), "zero 0; expected plus, minus"),
        (
            damaged_layers(layer1={"type": "batchnorm", "weights": "1", "eps": "x"}),
            "net.pt: layer 1 (batchnorm): eps 'x'",
        ),
        (
            damaged_layers(layer2={"type": "maxpool2d"}),
            "net.pt: layer 2 (maxpool2d): malformed",
        ),
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
        (b"{", "the header is not a JSON object"),
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
