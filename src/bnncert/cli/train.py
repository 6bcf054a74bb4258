"""`bnncert train`: a network from labelled images, exported exactly."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.files import refuse_unwritable
from bnncert.cli.grouping import grouped
from bnncert.cli.options import PrintOptions, SeedOption
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.cli.consoles import Consoles
    from bnncert.extras.training.datasets import FetchProgress
    from bnncert.extras.training.labelled_images import Dataset
    from bnncert.extras.training.training_options import Report, TrainingOptions, TrainingProgress


@dataclass(frozen=True)
class TrainingChoices:
    """The options that describe a training."""

    certify: Annotated[
        str | None,
        "L-inf radius at which to be certified: a share of the data range (0.1), or "
        "pixels (25px). It chooses input levels, losses, and the options not given.",
    ] = None
    hidden: Annotated[str | None, "Sizes of the dense hidden layers (default: 500,500)."] = None
    conv: Annotated[str | None, "Channels of 3 x 3 convolutions before them, e.g. 16,32."] = None
    stride: Annotated[
        int | None,
        "Stride of the convolutions; 1 (default): each is followed by 2 x 2 max-pooling.",
    ] = None
    zeros: Annotated[float | None, "Share of zero weights (default: 0.34); 0: binary weights."] = (
        None
    )
    epochs: Annotated[int | None, "Passes over the images (default: 40)."] = None
    batch: Annotated[int | None, "Images per step (default: 200)."] = None
    lr: Annotated[float | None, "Learning rate at the start (default: 0.001)."] = None
    seed: SeedOption = 0
    patience: Annotated[
        int | None,
        "Hold out a tenth of the images; stop after this many epochs without progress "
        "on it, and keep the best.",
    ] = None
    robust: Annotated[float, "Weight of penalties for easier verification (try 1)."] = 0.0
    radius: Annotated[float, "L-inf radius in pixels that --robust is about."] = 0.5

    def options(self) -> TrainingOptions:
        """Check the options, with the lists of sizes read from their texts."""
        from bnncert.extras.training.training_options import TrainingOptions

        sizes = {name: _sizes(getattr(self, name), f"--{name}") for name in ("hidden", "conv")}
        return TrainingOptions.chosen(**{**vars(self), **sizes})


@grouped
def train(
    *,
    ctx: typer.Context,
    data: Annotated[str, "mnist, cifar10, FILE.npz, or a folder of images."],
    out: Annotated[Path, "Network file to write: .npz, .json, .onnx."],
    choices: TrainingChoices,
    checkpoint: Annotated[Path | None, "State after each epoch (default: OUT.checkpoint)."] = None,
    limit: Annotated[
        int | None, typer.Option("--count", help="Train on this many images only, the first ones.")
    ] = None,
    force: Annotated[bool, "Replace the file that --out names, if it exists."] = False,
    printing: PrintOptions,
) -> None:
    """Train a ternary or binary network; the same command again continues an interrupted run."""
    from bnncert.cli.consoles import Consoles
    from bnncert.cli.grouping import refuse_without
    from bnncert.extras.training.datasets import REMOTE, data_folder, test_images_for_run
    from bnncert.extras.training.train import default_checkpoint, run_training

    consoles = Consoles.of(ctx, printing)
    refuse_without(ctx, "robust", ("radius",))
    if choices.certify is None:
        # Otherwise there are convolutions by default.
        refuse_without(ctx, "conv", ("stride",))
    options = choices.options()
    state = default_checkpoint(out) if checkpoint is None else checkpoint
    stored = data_folder().glob("*") if data in REMOTE else ()
    refuse_unwritable(out, state, read=(data, *stored))
    try:
        with _watch(consoles, options) as report:
            trained = run_training(
                data,
                out,
                options,
                checkpoint=checkpoint,
                limit=limit,
                force=force,
                progress=report,
                fetching=_fetching(consoles),
                loaded=lambda dataset: _show_images(dataset, options, consoles),
            )
    except KeyboardInterrupt:
        if state.exists():
            consoles.details.print(
                f"{state} has the last epoch; the same command continues from there"
            )
        sys.stdout.flush()
        raise
    network = trained.network
    consoles.answer.say(
        f"test accuracy {100 * trained.accuracy:.2f} %; file and trained model agree on all "
        f"{trained.compared} test images"
    )
    consoles.details.say(
        f"{out}: {'-'.join(map(str, network.sizes))}, zero weights {100 * trained.zeros:.2f} %, "
        f"hash {network.content_hash}"
    )
    if trained.radius is not None and trained.certified is not None:
        step = network.pixel_step
        radius = f"{trained.radius:.9g}" if step is None else f"{trained.radius / step:.6g}px"
        consoles.answer.say(
            f"certified accuracy at least {100 * trained.certified:.2f} % at {radius}, by "
            "intervals alone; with all methods:"
        )
        images = shlex.quote(test_images_for_run(data))
        consoles.answer.say(
            f"bnncert run {shlex.quote(str(out))} --data {images} --radius {radius} --timeout 10 "
            f"--out {shlex.quote(str(out.with_suffix('.sqlite')))}"
        )


def _show_images(dataset: Dataset, options: TrainingOptions, consoles: Consoles) -> None:
    if consoles.verbose:
        images = (
            f"{len(dataset.train.labels)} training images, {len(dataset.test.labels)} for tests"
        )
        consoles.details.say(f"{images}; {options}")


def _sizes(text: str | None, option: str) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(",") if text.strip())
    except ValueError:
        raise InputError(
            f"{option} is {text!r}; expected whole numbers separated by commas"
        ) from None


def _fetching(consoles: Consoles) -> FetchProgress:
    """Tell of each file that is downloaded once, with its size."""
    told: set[str] = set()

    def fetching(name: str, done: int, total: int | None) -> None:
        if name not in told:
            told.add(name)
            size = "" if total is None else f" ({total / 2**20:.1f} MB)"
            consoles.watching.say(f"fetching {name}{size}")

    return fetching


@contextmanager
def _watch(consoles: Consoles, options: TrainingOptions) -> Iterator[Report]:
    """Show the progress of an epoch, and a line for each finished epoch."""
    from bnncert.cli.progress import watch

    first: list[tuple[float, float]] = []
    with watch(consoles.watching) as live:

        def report(now: TrainingProgress) -> None:
            if now.finished:
                # Hidden meanwhile: the line on stderr would be overwritten by that on stdout.
                with live.paused():
                    consoles.details.say(_line(now, options))
                    # Flushed, so that a log file shows each epoch at its end.
                    sys.stdout.flush()
                return
            done = now.epoch + now.step / max(now.steps, 1)
            if not first:
                # A training that continues from a checkpoint begins in the middle.
                first.append((done, time.monotonic()))
            text = f"epoch {now.epoch + 1}/{options.epochs}: loss {now.loss:.4f}, "
            text += f"accuracy {100 * now.accuracy:.2f} %"
            live.show(text, now.step, now.steps, _remaining(*first[0], done, options))

        yield report


def _remaining(first: float, started: float, done: float, options: TrainingOptions) -> str:
    """Return the expected time of the epochs that are left."""
    from bnncert.results.runner import duration

    if done <= first:
        return ""
    left = (options.epochs - done) * (time.monotonic() - started) / (done - first)
    # With patience the training may end before the last epoch.
    return f"{'at most ' if options.patience else 'about '}{duration(left)} left"


def _line(now: TrainingProgress, options: TrainingOptions) -> str:
    parts = [
        f"epoch {now.epoch}/{options.epochs}",
        f"loss {now.loss:.4f}",
        f"accuracy {100 * now.accuracy:.2f} %",
        f"zeros {100 * now.zeros:.1f} %",
    ]
    shares = {"open": now.open_share, "held out": now.held_out, "certified": now.certified}
    parts += [f"{name} {100 * s:.2f} %" for name, s in shares.items() if s is not None]
    return "  ".join([*parts, f"{now.seconds:.1f} s"])
