"""The training loop: Adam with exponential decay, early stopping, a checkpoint every epoch.

One generator, initialised with the seed, draws the initial weights and then the order of the images
in every epoch.  A training that continues from a checkpoint draws them again, so it does the same
steps as an uninterrupted one.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from bnncert.arrays import FloatArray
from bnncert.engine.batches import BatchIntervals, interval_proofs
from bnncert.engine.exact_classes import chunk_size
from bnncert.errors import FormatError, InputError
from bnncert.extras.training.binary_model import (
    TernaryNet,
    adversarial_box,
    certified_loss,
    penalised_scores,
    scores_and_worst,
)
from bnncert.extras.training.export import to_network
from bnncert.extras.training.labelled_images import Dataset, Scaling, Split
from bnncert.extras.training.training_options import Report, TrainingOptions, TrainingProgress
from bnncert.model.formats.atomic import write_atomically
from bnncert.model.formats.file_content import open_archive, read_bytes
from bnncert.model.network import Network
from bnncert.problem import robustness
from bnncert.regions import Ball

#: The most images that are bounded at once.
MOST = 256


def certified_share(
    network: Network, points: FloatArray, labels: npt.NDArray[np.int64], radius: float
) -> float:
    """Find the share of points whose L-inf ball is proved to have the label, by intervals alone.

    It is a lower bound of the certified accuracy, because `run` goes on with the rest.
    """
    intervals = BatchIntervals(network)
    box = network.input_lo, network.input_hi
    size, proved = max(1, min(MOST, chunk_size(network))), 0
    for start in range(0, len(labels), size):
        rows = slice(start, start + size)
        balls = [Ball("linf", point, radius, *box) for point in points[rows]]
        problems = [
            robustness(network, ball, int(label), "all", "violation")
            for ball, label in zip(balls, labels[rows], strict=True)
        ]
        bounds = intervals.bounds([problem.region for problem in problems])
        proved += int(np.sum(interval_proofs(problems, bounds, "violation")[1]))
    return proved / len(labels)


# -- checkpoints --------------------------------------------------------------------------

FORMAT = "bnncert training 1"


@dataclass
class TrainingState:
    """The state on which the next epoch depends."""

    model: dict[str, Any]
    optimiser: dict[str, Any]
    #: The number of finished epochs.
    epoch: int = 0
    #: The model after the epoch with the best held-out accuracy (certified, if that is the aim).
    best: dict[str, Any] | None = None
    best_accuracy: float = -1.0
    #: Epochs since then.
    waited: int = 0


def save_checkpoint(path: Path, state: TrainingState, identity: dict[str, Any]) -> None:
    """Write the state atomically."""
    # Written to memory first, because torch reports a full disk with other exceptions.
    content = io.BytesIO()
    torch.save({"format": FORMAT, "identity": json.dumps(identity), **vars(state)}, content)
    write_atomically(path, content.getvalue())


def load_checkpoint(path: Path, identity: dict[str, Any]) -> TrainingState | None:
    """Return the state in a file, None if it does not exist; raise for another training."""
    if not path.exists():
        return None
    try:
        stored = read_bytes(path)
        with open_archive(stored, path, "checkpoint"):
            # With weights_only, only tensors and plain values are unpickled.
            content = torch.load(io.BytesIO(stored), weights_only=True)
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError("something else")
        found = json.loads(content.pop("identity"))
        state = TrainingState(**content)
    except Exception as error:
        # torch raises many types on broken files.
        raise FormatError(
            f"{path}: not a checkpoint of a training; remove it, or name another with --checkpoint"
        ) from error
    for key, wanted in identity.items():
        if found.get(key) != wanted:
            raise InputError(
                f"{path}: belongs to a training with {key} {_show(found.get(key))}, not "
                f"{_show(wanted)}; remove it, or name another with --checkpoint"
            )
    return state


def _show(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return str(value)[:16]


# -- the loop -----------------------------------------------------------------------------

#: The final learning rate as a share of the initial one.
FINAL_RATE = 0.01

#: Optimiser steps between two updates of the zero thresholds.
THRESHOLD_INTERVAL = 10

#: Share of the training images held out for early stopping.
HELD_OUT = 0.1

#: Images evaluated at once.
CHUNK = 1000

#: In certified training, the part of the epochs in which radius and sparsity grow to their ends.
RAMP = 0.4

#: After the ramp, the share of the worst case in the loss (the rest is that of an adversary's
#: points), and of the inputs that are free in it.  With all inputs free intervals prove nearly all
#: that is true, and little is; the other methods prove the rest.
WORST, FREE = 0.5, 0.3

#: Zero weights at the start of the ramp, and of output and kernels all the time.
FIRST_ZEROS, FEW_ZEROS = 0.34, 0.3

#: The most images that are held out and certified after every epoch.
MOST_CERTIFIED = 3000


class Images:
    """Training images as they are stored, scaled batch by batch to save memory."""

    def __init__(self, split: Split, scaling: Scaling) -> None:
        stored = split.images.reshape(len(split.images), -1)
        if stored.dtype != np.uint8:
            stored = stored.astype(np.float32)
        self._stored = torch.from_numpy(np.ascontiguousarray(stored))
        self._scaling = scaling
        self.labels = torch.from_numpy(split.labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: Tensor) -> Tensor:
        """Return flat float32 points in the network's input units."""
        chosen = self._stored[rows]
        if chosen.dtype == torch.uint8:
            # Rounded once, at the end, as in the evaluation of the exported network.
            return chosen.double().div_(127.5).sub_(1.0).float()
        return chosen

    def ball(self, x: Tensor, radius: float) -> tuple[Tensor, Tensor]:
        """Return the L-inf balls around points, intersected with the data box."""
        lo, hi = x - radius, x + radius
        if self._scaling.lo is not None and self._scaling.hi is not None:
            lo, hi = lo.clamp_(min=self._scaling.lo), hi.clamp_(max=self._scaling.hi)
        return lo, hi


def fit(
    dataset: Dataset,
    options: TrainingOptions,
    *,
    checkpoint: Path | None = None,
    report: Report | None = None,
) -> TernaryNet:
    """Train a network; with `checkpoint`, continue from it and write it after every epoch."""
    scaling = dataset.scaling
    images = Images(dataset.train, scaling)
    certify = options.certified_radius(scaling, dataset.input_shape)
    reach = _reach(scaling, options)
    rows, held_out = _hold_out(len(images), options)
    if len(rows) < 2:
        raise InputError(f"{len(rows)} training images; batch normalisation needs at least 2")
    generator = torch.Generator().manual_seed(options.seed)
    thresholds = options.input_thresholds(scaling, certify)
    sizes = (dataset.input_shape, options.conv, options.hidden, dataset.classes)
    net = TernaryNet(*sizes, generator, thresholds, options.stride, options.kernel)
    loop = _Loop(net, images, options, reach, certify, report)
    loop.set_zero_share(0.0)
    optimiser = torch.optim.Adam(net.parameters(), lr=options.lr)
    state = TrainingState(net.state_dict(), optimiser.state_dict())
    identity = _identity(dataset.train, scaling, options)
    if checkpoint is not None:
        state = load_checkpoint(checkpoint, identity) or state
        net.load_state_dict(state.model)
        optimiser.load_state_dict(state.optimiser)
    for _ in range(state.epoch):
        torch.randperm(len(rows), generator=generator)
    patience = math.inf if options.patience is None else options.patience
    while state.epoch < options.epochs and state.waited < patience:
        started = time.perf_counter()
        for group in optimiser.param_groups:
            group["lr"] = options.lr * _rate(state.epoch / options.epochs, options)
        order = torch.from_numpy(rows)[torch.randperm(len(rows), generator=generator)]
        last = loop.epoch(order, state.epoch, optimiser)
        kept, certified = net, None
        if certify is not None:
            # As it would be written now: the statistics of training are those of single batches.
            kept = copy.deepcopy(net)
            _recompute_statistics(kept, images, rows)
            part = Split(dataset.train.images[held_out], dataset.train.labels[held_out])
            points = scaling.points(part.images)
            certified = certified_share(to_network(kept, scaling), points, part.labels, certify)
        accuracy = _accuracy(kept, images, held_out) if len(held_out) else None
        _record_epoch(state, accuracy if certified is None else certified, net, kept, optimiser)
        if checkpoint is not None:
            save_checkpoint(checkpoint, state, identity)
        if report is not None:
            report(
                replace(
                    last,
                    epoch=state.epoch,
                    zeros=net.zero_share(),
                    seconds=time.perf_counter() - started,
                    finished=True,
                    held_out=accuracy,
                    certified=certified,
                )
            )
    if state.best is not None:
        net.load_state_dict(state.best)
    _recompute_statistics(net, images, rows)
    return net


def _reach(scaling: Scaling, options: TrainingOptions) -> float | None:
    """Return the radius of the balls of the penalties in input units, None without penalties."""
    if options.robust == 0:
        return None
    if scaling.pixel_step is None:
        raise InputError("--robust needs data in pixels (uint8), or pixel_step in the data file")
    return options.radius * scaling.pixel_step


def _hold_out(
    count: int, options: TrainingOptions
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the images to train on and those held out for early stopping."""
    if options.patience is None and options.certify is None:
        return np.arange(count), np.arange(0)
    order = np.random.default_rng([options.seed, 1]).permutation(count)
    size = max(1, round(HELD_OUT * count))
    if options.certify is not None:
        size = min(size, MOST_CERTIFIED)
    return np.sort(order[size:]), np.sort(order[:size])


def _identity(split: Split, scaling: Scaling, options: TrainingOptions) -> dict[str, Any]:
    """Return the data and options that must be equal to continue a training."""
    digest = hashlib.sha256(np.ascontiguousarray(split.images).tobytes())
    digest.update(split.labels.astype("<i8").tobytes())
    digest.update(repr(scaling).encode())
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(options).items()}
    return {**plain, "data": digest.hexdigest()}


def _record_epoch(
    state: TrainingState, accuracy: float | None, net: TernaryNet, kept: TernaryNet, optimiser: Any
) -> None:
    """Add a finished epoch to the state; `accuracy` is that of `kept` on the images held out."""
    state.epoch += 1
    state.waited += 1
    if accuracy is not None and accuracy > state.best_accuracy:
        state.best_accuracy, state.waited = accuracy, 0
        state.best = copy.deepcopy(kept.state_dict())
    state.model, state.optimiser = net.state_dict(), optimiser.state_dict()


@dataclass(frozen=True, eq=False)
class _Loop:
    """The parts of a training that do not change between epochs.

    `reach` is the radius of the balls of the penalties in input units, None without penalties, and
    `certify` the one to certify.
    """

    net: TernaryNet
    images: Images
    options: TrainingOptions
    reach: float | None
    certify: float | None
    report: Report | None

    def set_zero_share(self, ramp: float) -> None:
        """Move the zero thresholds; certified training makes layers sparse along its ramp."""
        zeros = self.options.zeros
        if self.certify is None:
            return self.net.set_zero_share(zeros)
        first = min(FIRST_ZEROS, zeros)
        self.net.set_zero_share(first + ramp * (zeros - first), min(FEW_ZEROS, zeros))

    def epoch(self, order: Tensor, number: int, optimiser: Any) -> TrainingProgress:
        """Train on the images once, in this order; return the averages over them."""
        started = time.perf_counter()
        self.net.train()
        batches = [batch for batch in order.split(self.options.batch) if len(batch) > 1]
        total, right, seen, opened = 0.0, 0, 0, 0.0
        zeros = self.net.zero_share()
        # One for each epoch, so that a training which continues draws what it would have drawn.
        drawn = np.random.default_rng([self.options.seed, 2, number]).integers(2**63)
        generator = torch.Generator().manual_seed(int(drawn))
        progress = None
        for step, batch in enumerate(batches, start=1):
            x, labels = self.images.batch(batch), self.images.labels[batch]
            done = (number + step / len(batches)) / self.options.epochs
            ramp = min(1.0, done / RAMP)
            scores, loss, share = self._loss(x, labels, ramp, generator)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if self.certify is None:
                # Most weights of a sparse layer would end at the clip, and then none is above it.
                self.net.clip_latent()
            if step % THRESHOLD_INTERVAL == 0 or step == len(batches):
                self.set_zero_share(ramp)
            seen += len(batch)
            total += float(loss.detach()) * len(batch)
            right += int((scores.detach().argmax(1) == labels).sum())
            opened += share * len(batch)
            progress = TrainingProgress(
                number,
                step,
                len(batches),
                total / seen,
                right / seen,
                zeros,
                time.perf_counter() - started,
                open_share=None if self.reach is None else opened / seen,
            )
            if not math.isfinite(progress.loss):
                raise InputError(
                    f"the loss became {progress.loss} in epoch {number + 1}; scale the data, or "
                    "lower --lr"
                )
            if self.report is not None:
                self.report(progress)
        assert progress is not None
        return progress

    def _loss(
        self, x: Tensor, labels: Tensor, ramp: float, generator: Any
    ) -> tuple[Tensor, Tensor, float]:
        """Return the scores and the loss of a batch, and the share of unstable neurons."""
        if self.certify is not None:
            ball = self.images.ball(x, ramp * self.certify)
            free = torch.rand(x.shape, generator=generator) < FREE
            point, *box = adversarial_box(self.net, x, labels, *ball, free)
            scores, worst = scores_and_worst(self.net, point, labels, *box)
            parts = scores / self.net.temperature, worst / self.net.temperature
            return scores, certified_loss(*parts, labels, ramp * WORST), 0.0
        if self.reach is None:
            scores = self.net(x)
            return scores, functional.cross_entropy(scores / self.net.temperature, labels), 0.0
        found = penalised_scores(self.net, x, labels, *self.images.ball(x, self.reach))
        plain = functional.cross_entropy(found.scores / self.net.temperature, labels)
        return found.scores, plain + self.options.robust * found.penalty, found.open_share


def _rate(done: float, options: TrainingOptions) -> float:
    """Return the learning rate as a share of the first one.

    In certified training it stays high until the ramp ends, and then falls as a cosine.
    """
    if options.certify is None:
        return float(FINAL_RATE**done)
    return max(FINAL_RATE, 0.5 * (1 + math.cos(math.pi * done)))


def _accuracy(net: TernaryNet, images: Images, rows: npt.NDArray[np.int64]) -> float:
    net.eval()
    right = 0
    with torch.no_grad():
        for chunk in torch.from_numpy(rows).split(CHUNK):
            right += int((net(images.batch(chunk)).argmax(1) == images.labels[chunk]).sum())
    return right / len(rows)


def _recompute_statistics(net: TernaryNet, images: Images, rows: npt.NDArray[np.int64]) -> None:
    """Replace the running batch statistics by averages over the training images.

    The running ones lag behind the weights, which no longer change at this point.
    """
    for layer in net.layers:
        layer.norm.reset_running_stats()
        layer.norm.momentum = None  # the plain average over all batches
    net.train()
    with torch.no_grad():
        for chunk in torch.from_numpy(rows).split(CHUNK):
            if len(chunk) > 1:
                net(images.batch(chunk))
    net.eval()
