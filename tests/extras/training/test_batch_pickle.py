"""Pickled batches of CIFAR-10."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert.errors import FormatError
from bnncert.extras.training.labelled_images import read_batch
from tests.extras.training.image_data import one_line

#: A batch as Python 2 wrote it: protocol 2, str for everything, numpy under its old name.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\n"
    b"q\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x01K\x04\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87R"
    b"q\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x04\x01\x02\xfe\xfftb"
    b"U\x06labelsq\x08]q\tK\x07au."
)


def test_a_batch_as_python_2_wrote_it() -> None:
    images, labels = read_batch(PYTHON_2, "b")
    np.testing.assert_array_equal(images, [[1, 2, 254, 255]])
    np.testing.assert_array_equal(labels, [7])


class Mischief:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_no_function_of_a_pickle_is_called(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "trace"
    for mischief in (
        Mischief(os.mkdir, str(trace)),
        Mischief(eval, f"__import__('os').mkdir({str(trace)!r})"),
        Mischief(np.load, str(trace)),
        Mischief(getattr, "text", "upper"),
    ):
        tree = {b"data": mischief, b"labels": [1]}
        with pytest.raises(FormatError) as error:
            read_batch(pickle.dumps(tree, protocol=protocol), "batch")
        one_line(error, "batch", "the pickle uses")
        assert not trace.exists()


@pytest.mark.parametrize(
    "tree",
    [
        [1, 2],
        {b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.float32), b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": ["a"]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": [[1], [2, 3]]},
        {b"data": b"abc", b"labels": [1]},
    ],
)
def test_a_pickle_of_something_else_is_refused(tree: Any) -> None:
    with pytest.raises(FormatError) as error:
        read_batch(pickle.dumps(tree), "batch")
    one_line(error, "batch", "CIFAR-10 batch")


def test_every_truncation_of_a_pickle_is_refused() -> None:
    content = pickle.dumps({b"data": np.zeros((1, 40), np.uint8), b"labels": [1]}, protocol=2)
    for length in range(len(content)):
        with pytest.raises(FormatError):
            read_batch(content[:length], "batch")
