"""The training loop, its checkpoints and its quantisers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.errors import FormatError, InputError
from bnncert.extras.training.labelled_images import BYTES, Scaling, Split
from bnncert.extras.training.training_options import TrainingOptions, TrainingProgress
from tests.extras.training.tiny import CLASSES, blobs

torch: Any = pytest.importorskip("torch", reason="needs the extra 'train'")
from bnncert.extras.training import export  # noqa: E402
from bnncert.extras.training.binary_model import TernaryNet, sign, ternary  # noqa: E402
from bnncert.extras.training.fitting import fit  # noqa: E402
from tests.extras.training.trained import CONV, SMALL, dataset, train  # noqa: E402


def same(one: TernaryNet, other: TernaryNet) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


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
    network, accuracy = export.write_network(net, BYTES, test, tmp_path / "net.npz")
    points = test.images.reshape(200, -1) / 127.5 - 1.0
    assert accuracy == np.mean(network.classify(points) == test.labels)
    assert accuracy > 0.8


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


def test_what_cannot_be_trained() -> None:
    with pytest.raises(InputError, match="too many for images of 8 x 8"):
        train(replace(SMALL, conv=(2, 2, 2, 2)))
    with pytest.raises(InputError, match="4 convolutions with stride 3 are too many"):
        train(replace(SMALL, conv=(2, 2, 2, 2), stride=3))
    flat = blobs(50, 1)
    with pytest.raises(InputError, match="needs images"):
        fit(dataset(flat, input_shape=(64,)), replace(SMALL, conv=(2,)))
    unscaled = dataset(Split(flat.images / 255.0, flat.labels), Scaling(None, None, None))
    with pytest.raises(InputError, match="pixel"):
        fit(unscaled, replace(SMALL, robust=1.0))
    with pytest.raises(InputError, match="binarise_input needs data in pixels"):
        fit(unscaled, replace(SMALL, binarise_input=True))
    with pytest.raises(InputError, match="1 training images"):
        train(SMALL, blobs(1, 1))


def test_floats_enter_as_they_are(tmp_path: Path) -> None:
    split, test = blobs(200, 1), blobs(50, 2)
    scaling = Scaling(0.0, 1.0, 1 / 255)
    floats = [Split(part.images / 255.0, part.labels) for part in (split, test)]
    net = fit(dataset(floats[0], scaling), replace(SMALL, epochs=2))
    network, _ = export.write_network(net, scaling, floats[1], tmp_path / "net.npz")
    assert network.pixel_step == 1 / 255
    assert network.input_hi is not None and set(network.input_hi) == {1.0}


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
