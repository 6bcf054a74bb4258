"""Training of a network from labelled images, from the data to the file.

PyTorch is an extra and takes seconds to import, so the modules that use it are imported on use.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bnncert.errors import InputError, MissingExtraError
from bnncert.extras.training.datasets import REMOTE, FetchProgress, load_dataset
from bnncert.extras.training.labelled_images import Dataset, Split
from bnncert.extras.training.training_options import Report, TrainingOptions, TrainingProgress
from bnncert.model.network import Network


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A trained network, with exactly the scores of the trained model on all test images.

    Attributes
    ----------
    network
        The network, as its file has it.
    accuracy
        The share of the test images whose class it finds.
    compared
        The number of test images.
    zeros
        The share of zero weights.
    epochs
        The loss and the accuracies of each epoch, without those before a checkpoint.
    radius, certified
        The radius to certify in input units, and the share of the test images that interval
        bounds alone certify there; None without such a radius.
    """

    network: Network
    accuracy: float
    compared: int
    zeros: float
    epochs: tuple[TrainingProgress, ...]
    radius: float | None = None
    certified: float | None = None

    def __repr__(self) -> str:
        return f"TrainedNetwork({self.network!r}, accuracy {100 * self.accuracy:.2f} %)"


def train(
    data: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    certify: float | str | None = None,
    hidden: Sequence[int] | None = None,
    conv: Sequence[int] | None = None,
    stride: int | None = None,
    zeros: float | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    seed: int = 0,
    patience: int | None = None,
    robust: float = 0.0,
    radius: float = 0.5,
    binarise_input: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Report | None = None,
) -> TrainedNetwork:
    """Train a ternary or binary network and write it to a file (docs/training.md).

    After an interruption, the same call continues with the epoch after the last complete one.

    Parameters
    ----------
    data
        "mnist", "cifar10", an .npz file, or a folder of images.
    out
        The file to write: .npz, .json or .onnx.
    certify
        The L-inf radius at which the network is to be certified, as a share of the data range
        (0.1) or in pixels ("25px"); it chooses the input levels, and the options not given.
    hidden, conv
        The sizes of the dense hidden layers (default: 500, 500), and the channels of the
        convolutions before them.
    stride
        The stride of the convolutions; with 1, each is followed by 2 x 2 max-pooling.
    zeros
        The share of zero weights (default: 0.34); 0 makes the weights binary.
    epochs, batch, lr
        The passes over the images (default: 40), the images per step (200), and the learning rate
        at the start (0.001).
    seed
        The seed of all randomness.
    patience
        Hold out a tenth of the images, stop after this many epochs without progress on it, and
        keep the best.
    robust, radius
        The weight of penalties for easier verification, and the L-inf radius in pixels that they
        are about.
    binarise_input
        Whether the first layer is the sign of every pixel about mid-grey.
    checkpoint
        The file of the state after each epoch, which is kept (default: `out` with
        ``.checkpoint``, which is removed at the end).
    limit
        Train on this many images only, the first ones.
    data_dir
        The folder of "mnist" and "cifar10", to which missing files are downloaded.
    force
        Whether `out` may be replaced if it exists.
    progress
        Called after each step and each epoch with their loss and accuracies.

    Returns
    -------
    TrainedNetwork
        The network and its accuracies.

    Raises
    ------
    InputError
        If an option or the data are not usable, or `out` exists or cannot be written.
    MissingExtraError
        If PyTorch is not installed.

    Examples
    --------
    >>> import os, tempfile, bnncert
    >>> from importlib.resources import files
    >>> images = files("bnncert") / "data" / "mnist_test_100.npz"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = os.path.join(folder, "net.npz")
    ...     trained = bnncert.train(images, out=out, hidden=(8,), epochs=1, batch=20)
    >>> trained.network.sizes, trained.compared, len(trained.epochs)
    ((784, 8, 10), 12, 1)
    """
    options = TrainingOptions.chosen(
        certify,
        hidden=None if hidden is None else tuple(hidden),
        conv=None if conv is None else tuple(conv),
        zeros=zeros,
        epochs=epochs,
        batch=batch,
        lr=lr,
        seed=seed,
        patience=patience,
        robust=robust,
        radius=radius,
        binarise_input=binarise_input,
        stride=stride,
    )
    return run_training(
        os.fspath(data),
        Path(out),
        options,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        limit=limit,
        data_dir=None if data_dir is None else Path(data_dir),
        force=force,
        progress=progress,
    )


def default_checkpoint(out: Path) -> Path:
    """Return the file of the state of a training that names none."""
    return out.with_name(out.name + ".checkpoint")


def run_training(
    data: str,
    out: Path,
    options: TrainingOptions,
    *,
    checkpoint: Path | None = None,
    limit: int | None = None,
    data_dir: Path | None = None,
    force: bool = False,
    progress: Report | None = None,
    fetching: FetchProgress | None = None,
    loaded: Callable[[Dataset], None] | None = None,
) -> TrainedNetwork:
    """Do what :func:`train` describes; `fetching` and `loaded` are told about the data."""
    if data_dir is not None and data not in REMOTE:
        raise InputError(f"--data-dir belongs to --data {' and '.join(REMOTE)}, not to {data}")
    if out.suffix not in (".npz", ".json", ".onnx"):
        raise InputError(f"{out}: cannot write {out.suffix!r}; use .npz, .json or .onnx")
    if options.conv and out.suffix == ".json":
        raise InputError(f"{out}: a convolutional network is written as .npz or .onnx only")
    if out.exists() and not force:
        raise InputError(f"{out}: exists already; give --force to replace it, or another name")
    # Errors in the data are reported first, but nothing is downloaded without PyTorch.
    if data in REMOTE:
        _require_pytorch()
    dataset = _limited(load_dataset(data, data_dir, progress=fetching), limit)
    options.check_inputs(dataset.input_shape)
    certify = options.certified_radius(dataset.scaling, dataset.input_shape)
    _require_pytorch()
    from bnncert.extras.training.export import write_network
    from bnncert.extras.training.fitting import certified_share, fit

    if loaded is not None:
        loaded(dataset)
    epochs: list[TrainingProgress] = []

    def report(now: TrainingProgress) -> None:
        if now.finished:
            epochs.append(now)
        if progress is not None:
            progress(now)

    state = default_checkpoint(out) if checkpoint is None else checkpoint
    net = fit(dataset, options, checkpoint=state, report=report)
    zeros = net.zero_share()
    network, accuracy = write_network(net, dataset.scaling, dataset.test, out)
    certified = None
    if certify is not None:
        points = dataset.scaling.points(dataset.test.images)
        certified = certified_share(network, points, dataset.test.labels, certify)
    if checkpoint is None:
        state.unlink(missing_ok=True)
    count = len(dataset.test.labels)
    return TrainedNetwork(network, accuracy, count, zeros, tuple(epochs), certify, certified)


def _require_pytorch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError("training needs PyTorch: pip install 'bnncert[train]'")


def _limited(dataset: Dataset, limit: int | None) -> Dataset:
    if limit is None:
        return dataset
    count = len(dataset.train.labels)
    if not 1 <= limit <= count:
        raise InputError(f"--count is {limit}; there are {count} training images")
    part = Split(dataset.train.images[:limit], dataset.train.labels[:limit])
    return dataset._replace(train=part)
