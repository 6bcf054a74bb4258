"""Training: quantisers, exact export, resuming, early stopping, seeds, robust penalties."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bnncert
from bnncert.errors import BnncertError, FormatError, InputError
from bnncert.training.labelled_images import BYTES, Scaling, Split
from bnncert.training.options import TrainingOptions
from tests.training.tiny import CLASSES, SIDE, blobs

torch: Any = pytest.importorskip("torch", reason="needs the extra 'train'")

from bnncert.training import export  # noqa: E402
from bnncert.training.fitting import TrainingProgress, fit  # noqa: E402
from bnncert.training.model import TernaryNet  # noqa: E402
from bnncert.training.quantise import sign, ternary  # noqa: E402
from bnncert.training.robust import DISTANCE, MARGIN, penalised_scores  # noqa: E402

SHAPE = (1, SIDE, SIDE)
SMALL = TrainingOptions(hidden=(24, 16), zeros=0.34, epochs=4, batch=50)
CONV = TrainingOptions(hidden=(16,), conv=(4, 6), zeros=0.34, epochs=3, batch=50, robust=0.5)


def train(
    options: TrainingOptions = SMALL,
    split: Split | None = None,
    *,
    checkpoint: Path | None = None,
    report: Any = None,
) -> TernaryNet:
    split = blobs(300, 1) if split is None else split
    return fit(split, SHAPE, CLASSES, BYTES, options, checkpoint=checkpoint, report=report)


def same(one: TernaryNet, other: TernaryNet) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# -- the model -------------------------------------------------------------------------------------


def test_quantisers_round_and_pass_gradients() -> None:
    latent = torch.tensor([-0.9, -0.2, 0.0, 0.2, 0.9], requires_grad=True)
    weights = ternary(latent, torch.tensor(0.2))
    assert weights.tolist() == [-1, 0, 0, 0, 1]
    weights.backward(torch.arange(5.0))
    assert latent.grad.tolist() == [0, 1, 2, 3, 4]
    assert ternary(latent, torch.tensor(-1.0)).tolist() == [-1, -1, 1, 1, 1]
    x = torch.tensor([-2.0, -1.0, -0.0, 0.5, 3.0], requires_grad=True)
    signs = sign(x)
    assert signs.tolist() == [-1, -1, 1, 1, 1]
    signs.sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("zeros", [0.0, 0.19, 0.5, 0.9])
def test_the_share_of_zeros_is_met_in_every_layer(zeros: float) -> None:
    net = train(replace(SMALL, zeros=zeros, epochs=2))
    for map_ in net.maps():
        weights = map_.weights()
        assert int((weights == 0).sum()) == round(zeros * weights.numel())
        assert set(weights.unique().tolist()) <= {-1.0, 0.0, 1.0}
    # Each layer rounds to a whole weight.
    total = sum(map_.latent.numel() for map_ in net.maps())
    assert abs(net.zero_share() - zeros) <= 0.5 * len(net.maps()) / total


def test_it_learns_and_beats_guessing_by_far(tmp_path: Path) -> None:
    test = blobs(200, 2, noise=30.0)
    net = train(replace(SMALL, epochs=8), blobs(400, 1, noise=30.0))
    written = export.write_network(net, BYTES, test, tmp_path / "net.npz")
    points = test.images.reshape(200, -1) / 127.5 - 1.0
    assert written.accuracy == np.mean(written.network.classify(points) == test.labels)
    assert written.accuracy > 0.8


# -- export ----------------------------------------------------------------------------------------


def loops(
    kernel: npt.NDArray[Any], image: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return a convolution with zero padding, and 2 x 2 maxima of `image`, by plain loops."""
    out, channels = kernel.shape[:2]
    _, height, width = image.shape
    sums = np.zeros((out, height, width))
    for o in range(out):
        for y in range(height):
            for x in range(width):
                for c in range(channels):
                    for dy in (-1, 0, 1):
                        for dx in (-1, 0, 1):
                            if 0 <= y + dy < height and 0 <= x + dx < width:
                                weight = kernel[o, c, dy + 1, dx + 1]
                                sums[o, y, x] += weight * image[c, y + dy, x + dx]
    pooled = np.zeros((channels, height // 2, width // 2))
    for c in range(channels):
        for y in range(height // 2):
            for x in range(width // 2):
                pooled[c, y, x] = image[c, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].max()
    return sums, pooled


def test_convolution_and_pooling_matrices_equal_plain_loops() -> None:
    rng = np.random.default_rng(3)
    for height, width in ((4, 4), (5, 7), (2, 3)):
        kernel = rng.integers(-1, 2, (3, 2, 3, 3)).astype(np.int8)
        image = rng.choice([-1.0, 1.0], (2, height, width))
        sums, pooled = loops(kernel, image)
        matrix = export.convolution_matrix(kernel, (height, width))
        np.testing.assert_array_equal(matrix @ image.reshape(-1), sums.reshape(-1))
        pool = export.pooling_matrix(2, (height, width))
        on = np.where(pool @ image.reshape(-1) + 3 >= 0, 1.0, -1.0)
        np.testing.assert_array_equal(on, pooled.reshape(-1))
    assert export.convolution_matrix(np.zeros((1, 1, 3, 3), np.int8), (2, 2)).nnz == 0


@pytest.mark.parametrize("binarised", [False, True], ids=["real", "binarised"])
@pytest.mark.parametrize("options", [SMALL, replace(CONV, epochs=1)], ids=["dense", "conv"])
def test_the_network_equals_the_model_everywhere(
    options: TrainingOptions, binarised: bool, tmp_path: Path
) -> None:
    net = train(replace(options, epochs=1, binarise_input=binarised))
    rng = np.random.default_rng(4)
    with torch.no_grad():
        for layer in net.layers:
            # Gains of both signs and zero, and odd statistics: folding must bear them all.
            size = layer.norm.weight.numel()
            gain = rng.normal(size=size)
            gain[:2] = 0.0
            layer.norm.weight.copy_(torch.from_numpy(gain))
            layer.norm.bias.copy_(torch.from_numpy(rng.normal(size=size)))
    network = export.to_network(net, BYTES)
    network.save(tmp_path / "net.npz")
    loaded = bnncert.load(tmp_path / "net.npz")
    assert loaded.content_hash == network.content_hash
    points = rng.uniform(-1, 1, (500, SIDE * SIDE))
    with torch.no_grad():
        wanted = net.double().eval()(torch.from_numpy(points)).numpy()
    assert len(np.unique(wanted, axis=0)) > (2 if binarised else 5)
    if binarised:
        first = loaded.layers[0].weights.toarray()
        np.testing.assert_array_equal(first, np.eye(SIDE * SIDE))
        np.testing.assert_array_equal(loaded.evaluate(np.sign(points)), wanted)
    np.testing.assert_array_equal(loaded.evaluate(points), wanted)
    assert loaded.input_shape == SHAPE
    assert loaded.pixel_step == 2 / 255
    assert loaded.input_lo is not None and loaded.input_hi is not None
    assert set(loaded.input_lo) == {-1.0} and set(loaded.input_hi) == {1.0}


def test_a_disagreement_is_an_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = train(replace(SMALL, epochs=1))
    right = export.to_network

    def wrong(model: TernaryNet, scaling: Scaling) -> bnncert.Network:
        network = right(model, scaling)
        output = replace(network.output, weights=-network.output.weights)
        return replace(network, output=output)

    monkeypatch.setattr(export, "to_network", wrong)
    with pytest.raises(BnncertError, match="differs from the trained model on 100 of 100"):
        export.write_network(net, BYTES, blobs(100, 2), tmp_path / "net.npz")
    assert list(tmp_path.iterdir()) == []


# -- the loop --------------------------------------------------------------------------------------


class Stop:
    """Reports until a given moment, and then behaves like Ctrl-C."""

    def __init__(self, epoch: int, step: int | None) -> None:
        self.epoch, self.step = epoch, step

    def __call__(self, now: TrainingProgress) -> None:
        ended = now.finished and self.step is None and now.epoch == self.epoch
        if ended or (not now.finished and now.epoch == self.epoch and now.step == self.step):
            raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [Stop(1, None), Stop(2, 3), Stop(0, 1)])
@pytest.mark.parametrize(
    "options",
    [SMALL, replace(SMALL, patience=2, robust=1.0), CONV],
    ids=["plain", "robust", "conv"],
)
def test_a_resumed_training_ends_where_an_uninterrupted_one_does(
    tmp_path: Path, options: TrainingOptions, stop: Stop
) -> None:
    whole = train(options)
    state = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        train(options, checkpoint=state, report=stop)
    assert state.exists() == (stop.epoch > 0)
    assert not list(tmp_path.glob(".*"))
    seen: list[TrainingProgress] = []
    resumed = train(options, checkpoint=state, report=seen.append)
    finished = [now.epoch for now in seen if now.finished]
    assert finished[0] == (stop.epoch + 1 if stop.epoch > 0 else 1)
    assert same(whole, resumed)
    files = [tmp_path / "whole.npz", tmp_path / "resumed.npz"]
    for net, file in zip((whole, resumed), files, strict=True):
        export.write_network(net, BYTES, blobs(50, 2), file)
    assert bnncert.load(files[0]).content_hash == bnncert.load(files[1]).content_hash


def test_seeds() -> None:
    options = replace(SMALL, epochs=1)
    assert same(train(options), train(options))
    assert not same(train(options), train(replace(options, seed=1)))


def test_training_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    train(replace(SMALL, epochs=1))
    assert torch.equal(before, torch.get_rng_state())


def test_early_stopping_ends_in_time_and_keeps_the_best_epoch(tmp_path: Path) -> None:
    # Labels that follow from nothing: held-out accuracy soon stops rising.
    split = blobs(300, 1)
    noise = Split(split.images, np.random.default_rng(5).permutation(split.labels))
    options = replace(SMALL, epochs=40, patience=3)
    seen: list[TrainingProgress] = []
    state = tmp_path / "state"
    train(options, noise, checkpoint=state, report=seen.append)
    held_out = [now.held_out for now in seen if now.finished]
    best = int(np.argmax(np.array(held_out, dtype=float)))
    assert len(held_out) == best + 1 + 3 < 40
    kept = torch.load(state, weights_only=True)["best"]
    # The same training that ends at the best epoch must have the same weights there. The rate
    # depends on the number of epochs, so it is stopped, not shortened.
    again = tmp_path / "again"
    with pytest.raises(KeyboardInterrupt):
        train(options, noise, checkpoint=again, report=Stop(best + 1, None))
    then = torch.load(again, weights_only=True)["model"]
    assert all(torch.equal(kept[key], then[key]) for key in then)


def test_held_out_images_are_not_trained_on() -> None:
    # A wrong label on a held-out image changes no weight; on any other image it would.
    options = replace(SMALL, epochs=1, patience=1)
    split = blobs(100, 1)
    held = np.sort(np.random.default_rng([0, 1]).permutation(100)[:10])
    changed = split.labels.copy()
    changed[held] = (changed[held] + 1) % CLASSES
    first = train(options, split).state_dict()
    second = train(options, Split(split.images, changed)).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    train(replace(SMALL, epochs=1), checkpoint=state)
    content = state.read_bytes()
    for other, word in (
        (replace(SMALL, epochs=2), "epochs"),
        (replace(SMALL, epochs=1, hidden=(24,)), "hidden 24,16, not 24"),
        (replace(SMALL, epochs=1, seed=1), "seed"),
    ):
        with pytest.raises(InputError, match=word) as error:
            train(other, checkpoint=state)
        assert str(state) in str(error.value)
    with pytest.raises(InputError, match="data"):
        train(replace(SMALL, epochs=1), blobs(300, 3), checkpoint=state)
    assert state.read_bytes() == content
    for broken in (b"", b"text", content[: len(content) // 2]):
        state.write_bytes(broken)
        with pytest.raises(FormatError, match="not a checkpoint") as broken_error:
            train(replace(SMALL, epochs=1), checkpoint=state)
        assert "\n" not in str(broken_error.value)


def test_a_checkpoint_is_never_unpickled_freely(tmp_path: Path) -> None:
    class Mischief:
        def __reduce__(self) -> Any:
            return Path.mkdir, (tmp_path / "trace",)

    state = tmp_path / "state"
    torch.save({"format": "bnncert training 1", "identity": Mischief()}, state)
    with pytest.raises(FormatError, match="not a checkpoint"):
        train(checkpoint=state)
    assert not (tmp_path / "trace").exists()


def test_what_cannot_be_trained() -> None:
    with pytest.raises(InputError, match="too many for images of 8 x 8"):
        train(replace(SMALL, conv=(2, 2, 2, 2)))
    flat = blobs(50, 1)
    with pytest.raises(InputError, match="needs images"):
        fit(flat, (64,), CLASSES, BYTES, replace(SMALL, conv=(2,)))
    floats = Split(flat.images / 255.0, flat.labels)
    with pytest.raises(InputError, match="pixel"):
        fit(floats, SHAPE, CLASSES, Scaling(None, None, None), replace(SMALL, robust=1.0))
    with pytest.raises(InputError, match="--binarise-input needs data in pixels"):
        fit(floats, SHAPE, CLASSES, Scaling(None, None, None), replace(SMALL, binarise_input=True))
    with pytest.raises(InputError, match="1 training images"):
        train(SMALL, blobs(1, 1))


def test_floats_enter_as_they_are(tmp_path: Path) -> None:
    split, test = blobs(200, 1), blobs(50, 2)
    scaling = Scaling(0.0, 1.0, 1 / 255)
    floats = [Split(part.images / 255.0, part.labels) for part in (split, test)]
    net = fit(floats[0], SHAPE, CLASSES, scaling, replace(SMALL, epochs=2))
    written = export.write_network(net, scaling, floats[1], tmp_path / "net.npz")
    assert written.network.pixel_step == 1 / 255
    assert written.compared == 50
    assert written.network.input_hi is not None and set(written.network.input_hi) == {1.0}


# -- penalties -------------------------------------------------------------------------------------


def one_neuron() -> TernaryNet:
    """Return scores (y, -y) with y = sign(x)."""
    net = TernaryNet((1,), (), (1,), 2)
    with torch.no_grad():
        net.layers[0].map.latent.fill_(0.5)
        net.output.latent.copy_(torch.tensor([[0.5], [-0.5]]))
        # Normalisation is the identity up to rounding.
        net.layers[0].norm.running_var.fill_(1.0 - net.layers[0].norm.eps)
    net.eval()
    return net


def penalty(net: TernaryNet, x: float, lo: float, hi: float, label: int) -> tuple[float, float]:
    points = [torch.tensor([[value]]) for value in (x, lo, hi)]
    found = penalised_scores(net, points[0], torch.tensor([label]), points[1], points[2])
    return float(found.penalty.detach()), found.open_share


def test_penalties_of_one_neuron_by_hand() -> None:
    assert MARGIN == 2.0
    net = one_neuron()
    # x = 0.3 may fall to -0.2: open, and both scores may move by 2.
    value, share = penalty(net, 0.3, -0.2, 0.8, 0)
    assert share == 1.0
    assert value == pytest.approx(
        math.log(1 + math.exp(2)) + DISTANCE * (1 - 0.3 / (2 * 0.5)), rel=1e-5
    )
    # With the box cut off at 0.1 the sign is fixed; twice the reach of 0.2 is not yet kept.
    value, share = penalty(net, 0.3, 0.1, 0.8, 0)
    assert share == 0.0
    assert value == pytest.approx(
        math.log(1 + math.exp(-2)) + DISTANCE * (1 - 0.3 / (2 * 0.2)), rel=1e-5
    )
    # Far away from the threshold only the cross entropy is left.
    value, share = penalty(net, -0.9, -1.0, -0.8, 1)
    assert value == pytest.approx(math.log(1 + math.exp(-2)), rel=1e-5)


@pytest.mark.parametrize("binarised", [False, True], ids=["real", "binarised"])
@pytest.mark.parametrize("conv", [(), (3,)])
def test_what_counts_as_fixed_does_not_change_in_the_box(
    conv: tuple[int, ...], binarised: bool
) -> None:
    """The margin term is an upper bound of the loss at every point of the box."""
    generator = torch.Generator().manual_seed(0)
    net = TernaryNet((1, 4, 4), conv, (8, 6), 3, generator, 0.0 if binarised else None)
    net.set_zero_share(0.3)
    rng = np.random.default_rng(6)
    for layer in net.layers:
        layer.norm.running_mean.copy_(
            torch.from_numpy(rng.normal(size=layer.norm.running_mean.numel()))
        )
    net.eval()
    moved = 0
    for trial in range(20):
        x = torch.from_numpy(rng.uniform(-1, 1, (1, 16))).float()
        label = torch.tensor([trial % 3])
        lo, hi = (x - 0.1).clamp(min=-1), (x + 0.1).clamp(max=1)
        found = penalised_scores(net, x, label, lo, hi)
        assert torch.equal(found.scores, net(x))
        near = lo + (hi - lo) * torch.from_numpy(rng.uniform(0, 1, (300, 16))).float()
        with torch.no_grad():
            scores = net(near) / net.temperature
            losses = torch.nn.functional.cross_entropy(scores, label.expand(300), reduction="none")
            moved += len(scores.unique(dim=0)) > 1
        assert float(losses.max()) <= float(found.penalty.detach()) + 1e-5
    assert moved > 3


def open_neurons(network: bnncert.Network, test: Split, radius: float) -> float:
    """Return how many neurons of layer 1 may flip, on average, after the network file alone."""
    weights = network.layers[0].weights.toarray().astype(float)
    points = test.images.reshape(len(test.labels), -1) / 127.5 - 1.0
    lo, hi = np.maximum(points - radius, -1), np.minimum(points + radius, 1)
    middle = (lo + hi) / 2 @ weights.T + network.layers[0].bias
    reach = (hi - lo) / 2 @ np.abs(weights).T
    return float(np.mean(np.sum(np.abs(middle) <= reach, axis=1)))


def test_the_penalties_leave_fewer_open_neurons() -> None:
    options = replace(SMALL, epochs=10, batch=20, rate=1e-2, delta=4.0)
    counts = []
    for strength in (0.0, 2.0):
        net = train(replace(options, robust=strength))
        network = export.to_network(net, BYTES)
        counts.append(open_neurons(network, blobs(200, 2), 4.0 * 2 / 255))
    assert counts[1] < 0.5 * counts[0]
