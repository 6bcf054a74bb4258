"""Training for certified accuracy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnncert
from bnncert.errors import InputError
from bnncert.extras.training.labelled_images import BYTES, Scaling
from bnncert.extras.training.training_options import TrainingOptions
from tests.extras.training.tiny import blobs, write_blobs
from tests.in_process import Outcome, command_line

torch: Any = pytest.importorskip("torch", reason="needs the extra 'train'")
from bnncert.extras.training import export  # noqa: E402
from bnncert.extras.training.binary_model import TernaryNet, adversarial_box, scores_and_worst  # noqa: E402
from bnncert.extras.training.fitting import certified_share  # noqa: E402
from tests.extras.training.trained import SMALL, dataset, fit  # noqa: E402

#: Seconds are enough with these; the radius is 25.5 pixels.
TINY: dict[str, Any] = {"hidden": (40,), "epochs": 12, "batch": 20, "zeros": 0.8}
RADIUS = 0.2


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Return what runs the command line in a folder with tiny data."""
    monkeypatch.chdir(tmp_path)
    write_blobs(tmp_path / "tiny.npz")
    return command_line(monkeypatch, capsys)


def test_the_certified_accuracy_is_above_that_of_a_plain_network(
    command: Callable[..., Outcome],
) -> None:
    common = ("train", "--data", "tiny.npz", "--batch", "20", "--epochs", "12")
    small = ("--hidden", "40", "--zeros", "0.8", "--out", "net.npz")
    outcome = command(*common, *small, "--certify", "0.1")
    assert (outcome.code, outcome.err) == (0, "")
    *epochs, accuracy, _, certified, following = outcome.out.splitlines()
    assert len(epochs) == 12 and all("  certified " in line for line in epochs)
    assert accuracy.startswith("test accuracy")
    share = float(certified.split()[4])
    assert certified.endswith("% at 25.5px, by intervals alone; with all methods:")
    plain = bnncert.train("tiny.npz", out="plain.npz", hidden=(40,), epochs=12, batch=20)
    test = blobs(100, 2)
    points = BYTES.points(test.images)
    found = certified_share(plain.network, points, test.labels, RADIUS)
    assert share / 100 > found + 0.3
    assert share / 100 == certified_share(bnncert.load("net.npz"), points, test.labels, RADIUS)
    # The command that is printed does what it says.
    program, *words = following.split()
    assert program == "bnncert"
    run = command(*words, "--count", "20")
    assert run.code == 0
    first = certified_share(bnncert.load("net.npz"), points[:20], test.labels[:20], RADIUS)
    assert float(run.out.splitlines()[-2].split()[-2]) >= 100 * first


def test_the_best_epoch_is_kept_and_an_interruption_changes_nothing(tmp_path: Path) -> None:
    options = TrainingOptions.chosen("25.5px", **{**TINY, "epochs": 4})
    data = dataset(blobs(300, 1))
    seen: list[Any] = []

    def stop(now: Any) -> None:
        if now.finished:
            seen.append(now)
        if len(seen) == 2 and not now.finished:
            raise KeyboardInterrupt

    file = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        fit(data, options, checkpoint=file, report=stop)
    continued = fit(data, options, checkpoint=file, report=lambda n: seen.append(n))
    whole = fit(data, options)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, continued.state_dict()[name]), name
    order = np.random.default_rng([options.seed, 1]).permutation(300)[:30]
    held = blobs(300, 1)
    share = certified_share(
        export.to_network(whole, BYTES),
        BYTES.points(held.images[np.sort(order)]),
        held.labels[np.sort(order)],
        RADIUS,
    )
    assert share == max(now.certified for now in seen if now.finished)


def test_fast_steps_leave_the_weights_that_are_asked_for() -> None:
    """Latent weights that are clipped would all be equal, and none above the zero threshold."""
    options = TrainingOptions.chosen(0.1, **{**TINY, "epochs": 3, "lr": 0.3})
    net = fit(dataset(blobs(300, 1)), options)
    weights = net.layers[1].map.weights()
    assert float((weights == 0).float().mean()) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("thresholds", [(), (0.0,), (-0.5, 0.1)], ids=["real", "one", "two"])
@pytest.mark.parametrize(("conv", "stride"), [((), 1), ((3,), 1), ((3,), 2)])
def test_no_point_of_the_box_is_worse_than_the_bound(
    conv: tuple[int, ...], stride: int, thresholds: tuple[float, ...]
) -> None:
    net = TernaryNet(
        (1, 4, 4), conv, (8, 6), 3, torch.Generator().manual_seed(0), thresholds, stride
    )
    net.set_zero_share(0.3)
    rng = np.random.default_rng(6)
    x = torch.from_numpy(rng.uniform(-1, 1, (30, 16))).float()
    labels = torch.from_numpy(rng.integers(0, 3, 30))
    with torch.no_grad():
        for layer in net.layers:
            # No sum of small integers is at its mean, where rounding would decide.
            layer.norm.bias.copy_(torch.from_numpy(rng.normal(size=len(layer.norm.bias))))
        scores, worst = scores_and_worst(net, x, labels, x - 0.1, x + 0.1)
        # Training normalises by the statistics of the batch.
        fixed = _with_statistics(net, x).eval()
        assert torch.equal(scores, fixed(x))
        moved = 0
        for _ in range(50):
            found = fixed(x + torch.from_numpy(rng.uniform(-0.1, 0.1, (30, 16))).float())
            moved += not torch.equal(found, scores)
            ahead = found - found.gather(1, labels[:, None])
            assert bool((ahead <= worst + 1e-4).all())
        assert moved > 3


def test_the_box_of_the_loss_is_a_part_of_the_ball_around_a_worse_point() -> None:
    net = fit(dataset(blobs(300, 1)), TrainingOptions.chosen(0.1, **{**TINY, "epochs": 2}))
    split = blobs(200, 2)
    x = torch.from_numpy(BYTES.points(split.images).reshape(200, -1)).float()
    labels = torch.from_numpy(split.labels.astype(np.int64))
    lo, hi = x - RADIUS, x + RADIUS
    free = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    point, low, high = adversarial_box(net, x, labels, lo, hi, free)
    assert bool(((point == lo) | (point == hi) | (point == x)).all())
    assert torch.equal(low[free], lo[free]) and torch.equal(high[free], hi[free])
    assert torch.equal(low[~free], point[~free]) and torch.equal(high[~free], point[~free])
    with torch.no_grad():
        at_point, at_image = (
            torch.nn.functional.cross_entropy(net(y) / net.temperature, labels, reduction="none")
            for y in (point, x)
        )
    # Where the step misses, the image itself is the point.
    assert bool((at_point >= at_image).all()) and at_point.sum() > at_image.sum()
    assert bool((point == x).all(1).any()) and not bool((point == x).all(1).all())


def test_a_large_ball_gets_more_kernels_unless_they_are_given() -> None:
    kernels = {radius: TrainingOptions.chosen(radius).conv for radius in (0.1, "51px", "52px", 0.3)}
    assert kernels == {0.1: (32,), "51px": (32,), "52px": (48,), 0.3: (48,)}
    assert TrainingOptions.chosen(0.3, conv=(8,)).conv == (8,)


def _with_statistics(net: TernaryNet, x: Any) -> TernaryNet:
    """Give the network the mean and the biased variance of the batch in every layer."""
    net.eval()
    x = net.shaped(x)
    for layer in net.layers:
        sums = layer.map.apply_weights(x, layer.map.weights())
        dims = (0, *range(2, sums.dim()))
        layer.norm.running_mean.copy_(sums.mean(dims))
        layer.norm.running_var.copy_(sums.var(dims, correction=0))
        x = layer.signs(layer.norm(sums))
    return net


@pytest.mark.parametrize("suffix", [".npz", ".onnx"])
@pytest.mark.parametrize("conv", [(), (4,)])
def test_several_input_levels_are_exported_exactly(
    suffix: str, conv: tuple[int, ...], tmp_path: Path
) -> None:
    options = TrainingOptions.chosen("2px", **{**TINY, "epochs": 1, "conv": conv})
    data = dataset(blobs(300, 1))
    thresholds = options.input_thresholds(BYTES, options.certified_radius(BYTES, (1, 8, 8)))
    assert len(thresholds) == 3
    levels = (np.array(thresholds) + 1) * 127.5
    assert np.allclose(levels % 1, 0.25)
    net = fit(data, options)
    network, _ = export.write_network(net, BYTES, data.test, tmp_path / f"net{suffix}")
    assert network.sizes[1] == 3 * 64


def test_a_table_is_refused_in_one_line(command: Callable[..., Outcome]) -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (60, 5)).astype(np.float32)
    np.savez("table.npz", x=rows, y=rng.integers(0, 2, 60), input_lo=-1.0, input_hi=1.0)
    outcome = command("train", "--data", "table.npz", "--out", "net.npz", "--certify", "0.1")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "--certify needs images" in outcome.err and "--robust" in outcome.err


def test_pixels_need_a_pixel_step() -> None:
    options = TrainingOptions.chosen("25px")
    with pytest.raises(InputError, match="does not state pixel_step"):
        options.certified_radius(Scaling(0.0, 1.0, None), (1, 8, 8))
    assert TrainingOptions.chosen(0.1).certified_radius(Scaling(0.0, 1.0, None), (1, 8, 8)) == 0.1
    assert replace(SMALL, certify=None).certified_radius(BYTES, (5,)) is None
