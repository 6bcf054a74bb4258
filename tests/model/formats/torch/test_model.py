"""Models in memory are read as PyTorch evaluates them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.errors import InputError

torch = pytest.importorskip("torch", reason="needs the extra 'train'")
nn = torch.nn
from tests.model.formats.torch.models import Sign, compare, dense, images, prepared  # noqa: E402


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
        (
            [nn.Tanh()],
            {},
            "layer 0 (Tanh): tanh is not part of a binary network (its operators are signs, linear "
            "maps, normalisation and pooling)",
        ),
        ([nn.ReLU(), linear(4, 3)], {}, "after 0 (Clip) only a sign or a quantiser is supported"),
        ([nn.ReLU(), Sign()], {}, "clips to [0, inf], which changes the sign"),
        (
            [BinaryLinear(4, 3)],
            {"roles": {BinaryLinear: "linear"}},
            "layer 0 (linear): BinaryLinear may quantise its weights: state it",
        ),
        (
            [BinaryLinear(4, 3)],
            {"roles": {BinaryLinear: "linear"}, "weights": "as stored"},
            'BinaryLinear does not compute the map of its weights with the quantiser "as stored"',
        ),
        (
            [SigningLinear(4, 3)],
            {"roles": {SigningLinear: "linear"}, "weights": "sign"},
            "SigningLinear does not compute the map of its weights",
        ),
        (
            [TernaryConv(4, 3, 2)],
            {"roles": {TernaryConv: "conv2d"}, "weights": "sign"},
            "TernaryConv does not compute the map of its weights",
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
        ([linear(5, 3)], {}, "PyTorch cannot execute it on inputs of shape 4 (mat1 and mat2"),
        ([nn.BatchNorm1d(4, track_running_stats=False)], {}, "it has no running_mean"),
        ([nn.BatchNorm1d(3)], {}, "layer 0 (BatchNorm1d): PyTorch cannot execute it"),
        (
            [nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 2, padding_mode="reflect", padding=1)],
            {},
            "layer 1 (Conv2d): pad is not part of a binary network",
        ),
        (
            [nn.Unflatten(1, (1, 2, 2)), nn.MaxPool2d(2, return_indices=True)],
            {},
            "it returns a tuple; expected one tensor",
        ),
        ([nn.MaxPool2d(2)], {}, "layer 0 (MaxPool2d): PyTorch cannot execute it"),
        ([nn.Flatten(0)], {}, "flatten to shape (12,) mixes the inputs of a batch"),
        ([nn.Softmax(dim=0)], {}, "dim 0; expected 1"),
        ([nn.Hardtanh(0.0, 1.0), Sign()], {}, "clips to [0, 1], which changes the sign"),
        ([nn.Hardtanh(), linear(4, 3)], {}, "only a sign or a quantiser is supported"),
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


def test_only_modules() -> None:
    with pytest.raises(InputError, match=r"function; expected a torch\.nn\.Module"):
        bnncert.from_torch(dense, (2,))
    with pytest.raises(InputError, match="input shape"):
        bnncert.from_torch(dense(), (0,))
