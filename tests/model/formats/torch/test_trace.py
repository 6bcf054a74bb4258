"""What a module executes is read, not what it has registered."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.errors import InputError
from bnncert.model.formats.torch import traced_operators as operators
from tests.data.make_larq_fixtures import inputs

torch = pytest.importorskip("torch", reason="needs the extra 'train'")
nn = torch.nn
F = nn.functional
from tests.model.formats.torch.models import Sign, prepared  # noqa: E402


def agrees(network: bnncert.Network, model: Any) -> None:
    """Compare classes and scores with PyTorch in double precision, on points of its own."""
    points = inputs(network.input_shape).astype(np.float64)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.no_grad():
            expected = copy.deepcopy(model).double().eval()(torch.from_numpy(points)).numpy()
    finally:
        torch.set_default_dtype(before)
    assert len(set(expected.argmax(axis=1))) > 1
    np.testing.assert_array_equal(network.classify(points), expected.argmax(axis=1))
    if network.output_transform == "scores":
        np.testing.assert_allclose(network.evaluate(points), expected, rtol=1e-6, atol=1e-6)


def robust_balls_have_one_class(network: bnncert.Network, model: Any) -> None:
    """In a ball with the verdict "robust", PyTorch finds no other class."""
    rng = np.random.default_rng(3)
    robust = 0
    for centre in inputs(network.input_shape)[:6]:
        radius = 0.02
        ball = bnncert.Ball("linf", centre.reshape(-1), radius)
        label = int(network.classify(centre)[0])
        result = bnncert.verify(network, ball, label, timeout=60)
        if result.status != "robust":
            continue
        robust += 1
        steps = rng.choice([-1.0, 0.0, 1.0], size=(2000, *network.input_shape))
        near = torch.from_numpy((centre + radius * steps).astype(np.float32))
        with torch.no_grad():
            assert len(set(model.eval()(near).argmax(1).tolist())) == 1
    assert robust


def shared_activation() -> Any:
    act = Sign()
    return nn.Sequential(nn.Linear(16, 8), act, nn.Linear(8, 8), act, nn.Linear(8, 3))


def shared_activation_and_norms() -> Any:
    act = Sign()
    norms = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
    layers = nn.Linear(16, 8), norms[0], act, nn.Linear(8, 8, bias=False), norms[1], act
    return nn.Sequential(*layers, nn.Linear(8, 3))


def shared_layer() -> Any:
    tied = nn.Linear(8, 8)
    return nn.Sequential(nn.Linear(16, 8), Sign(), tied, Sign(), tied, Sign(), nn.Linear(8, 3))


def shared_block() -> Any:
    block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), Sign())
    return nn.Sequential(nn.Linear(16, 8), Sign(), block, nn.Identity(), block, nn.Linear(8, 3))


@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (shared_activation, (16, 8, 8, 3)),
        (shared_activation_and_norms, (16, 8, 8, 3)),
        (shared_layer, (16, 8, 8, 8, 3)),
        (shared_block, (16, 8, 8, 8, 3)),
    ],
)
def test_a_module_that_is_used_twice_is_applied_twice(build: Any, sizes: Any) -> None:
    torch.manual_seed(4)
    model = prepared(build())
    network = bnncert.from_torch(model, (16,), input_lo=-1, input_hi=1)
    assert network.sizes == sizes
    agrees(network, model)
    robust_balls_have_one_class(network, model)


class Straight(torch.autograd.Function):  # type: ignore[name-defined,misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return torch.where(x < 0, -torch.ones_like(x), torch.ones_like(x))

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


class StraightSign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return Straight.apply(x)


class DetachedSign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        soft = F.hardtanh(x)
        return torch.sign(x).detach() - soft.detach() + soft


class AddedSign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return x + (torch.where(x > 0, 1.0, -1.0) - x).detach()


class OtherWaySign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return torch.where(torch.zeros_like(x) >= x, -1.0, 1.0)


class StepSign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return 2 * (x >= 0).to(x.dtype) - 1


class InPlaceSign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        alias = x.view(-1, x.shape[-1])
        x.mul_(2.0)
        return torch.where(F.hardtanh_(alias) >= 0, 1.0, -1.0)


class BinaryLinear(nn.Linear):  # type: ignore[name-defined,misc]
    """Binarises its weights with a scale, as XNOR-Net does."""

    def forward(self, x: Any) -> Any:
        scale = self.weight.abs().mean(dim=1, keepdim=True)
        return F.linear(x, scale * Straight.apply(self.weight), self.bias)


class LatentLinear(nn.Linear):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        weight = self.weight + (self.weight.sign() - self.weight).detach()
        return F.linear(x, weight, self.bias)


@pytest.mark.parametrize(
    ("sign", "zero"),
    [
        (StraightSign, "plus"),
        (DetachedSign, None),
        (AddedSign, "minus"),
        (StepSign, "plus"),
        (OtherWaySign, "minus"),
        (InPlaceSign, "plus"),
    ],
)
@pytest.mark.parametrize("linear", [BinaryLinear, LatentLinear])
def test_layers_of_the_user_are_read_from_what_they_compute(
    sign: Any, zero: str | None, linear: Any
) -> None:
    torch.manual_seed(7)
    model = nn.Sequential(linear(16, 9), sign(), linear(9, 7), sign(), linear(7, 3))
    network = bnncert.from_torch(model, (16,))
    assert network.sizes == (16, 9, 7, 3)
    assert [layer.fixed_sign_zero for layer in network.layers] == [zero is not None] * 2
    assert network.sign_zero == (zero or "plus")
    agrees(network, model)
    robust_balls_have_one_class(network, model)


class Functional(nn.Module):  # type: ignore[name-defined,misc]
    """Calls functions, methods and modules, some of them with constants."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.never_called = nn.Linear(5, 5)
        self.fc = nn.Linear(36, 8, bias=False)
        self.out = nn.Linear(8, 3)
        self.register_buffer("scale", torch.tensor([[0.5], [2.0], [1.0], [4.0]]).view(4, 1, 1))

    def forward(self, image: Any) -> Any:
        if image.dim() == 2:
            image = image.unsqueeze(1)
        x = (image - 0.25) / 0.5
        x = F.max_pool2d(self.norm(self.conv(x)) * self.scale, 2)
        x = x.sign().add(0.5).sign()
        x = x.permute(0, 2, 3, 1).transpose(1, 3).transpose(2, 3).contiguous()
        x = F.dropout(x.view(x.size(0), -1), 0.5, self.training)
        x = torch.clamp(-F.linear(x, self.fc.weight), -3, 3)
        x = torch.where(x > 0, torch.ones_like(x), torch.full_like(x, -1.0))
        return F.log_softmax(torch.addmm(self.out.bias, x, self.out.weight.t()), dim=-1)


def test_a_forward_pass_with_functions_is_read() -> None:
    torch.manual_seed(2)
    model = prepared(Functional())
    network = bnncert.from_torch(model, (1, 8, 8))
    # A convolution to 6 x 6, of which windows of 2 x 2 are pooled, and two layers.
    assert network.sizes == (64, 4 * 36, 36, 8, 3)
    assert [layer.sign_zero for layer in network.layers] == ["plus", "plus", "minus"]
    assert network.output_transform == "softmax"
    agrees(network, model)


class Deciding(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


class ByNumpy(nn.Linear):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        signs = np.sign(self.weight.detach().numpy())
        return F.linear(x, torch.from_numpy(signs).to(x.dtype)) + 0 * x.numpy().sum()


class Residual(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return x + torch.sign(x)


class Noisy(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return x + torch.randn(x.shape[-1])


class Counting(nn.Module):  # type: ignore[name-defined,misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


class Mixing(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return x - x.mean(0)


class Dropping(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return F.dropout(x, 0.5)


class Soft(nn.Linear):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return torch.tanh(F.linear(x, self.weight))


class SoftSign(nn.Module):  # type: ignore[name-defined,misc]
    def forward(self, x: Any) -> Any:
        return torch.tanh(x)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (
            Deciding(),
            "layer 1 (Deciding): what it computes cannot be recorded (it decides by the numbers of "
            'its input); if it is a sign, pass roles={Deciding: "sign"}',
        ),
        (
            ByNumpy(4, 4),
            'if it is a linear layer, pass roles={ByNumpy: "linear"} and how it quantises its '
            'weights, weights={"1": "sign"} (or "ternary:T", "as stored")',
        ),
        (
            Soft(4, 4),
            "layer 1 (Soft): tanh is not part of a binary network (its operators are signs, linear "
            'maps, normalisation and pooling); if it is a linear layer, pass roles={Soft: "lin',
        ),
        (SoftSign(), '); if it is a sign, pass roles={SoftSign: "sign"}'),
        (Residual(), "layer 1 (Residual): add reads a tensor that something else reads"),
        (Noisy(), "layer 1 (Noisy): randn is random"),
        (Counting(), "the model changes its buffers when it is called"),
        (Mixing(), "layer 1 (Mixing): mean is not part of a binary network"),
        (Dropping(), "layer 1 (Dropping): dropout in training mode"),
    ],
)
def test_what_is_not_understood_is_refused(module: Any, expected: str, capfd: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), module, Sign(), nn.Linear(4, 2))
    with pytest.raises(InputError) as caught:
        bnncert.from_torch(prepared(model), (4,))
    assert str(caught.value).startswith("<torch model>: ")
    assert expected in str(caught.value)
    # torch.export has messages of its own.
    assert capfd.readouterr() == ("", "")


def test_a_linear_layer_that_cannot_be_recorded_is_read_with_its_role() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(ByNumpy(16, 8, bias=False), Sign(), ByNumpy(8, 3, bias=False))
    network = bnncert.from_torch(model, (16,), roles={ByNumpy: "linear"}, weights="sign")
    agrees(network, model)


def test_the_model_is_left_as_it_was() -> None:
    model = prepared(shared_block()).train()
    model[2][1].eval()
    modes = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    bnncert.from_torch(model, (16,), weights={"0": "ternary:0.5"})
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert [id(tensor) for tensor in (*model.parameters(), *model.buffers())] == tensors
    assert not any("forward" in vars(module) for module in model.modules())
    assert torch.get_default_dtype() == torch.float32


def test_an_import_that_loses_a_layer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepared(shared_activation())

    def forgotten(chain: Any, call: Any) -> None:
        if call.layer.name != "2":
            operators._linear(chain, call)

    monkeypatch.setitem(operators._HANDLERS, "linear", forgotten)
    with pytest.raises(InputError, match=r"<torch model>: was read as another network than PyT.*"):
        bnncert.from_torch(model, (16,))


def test_an_import_with_a_changed_weight_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = prepared(shared_activation())

    def changed(tensor: Any, layer: Any, what: str) -> Any:
        array = original(tensor, layer, what)
        return np.where(np.arange(array.size).reshape(array.shape) == 3, -1, array)

    original = operators.tensor_array
    bnncert.from_torch(model, (16,))
    monkeypatch.setattr(operators, "tensor_array", changed)
    with pytest.raises(InputError) as caught:
        bnncert.from_torch(model, (16,))
    assert "at input " in str(caught.value) and " in PyTorch" in str(caught.value)
