"""The pickled batches of CIFAR-10, read without executing code of the pickle.

A pickle can call any function.  This reader raises an error for every name except those with which
NumPy arrays and bytes are pickled, and replaces these by classes of this module that only record
their arguments.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import FormatError


class _Type:
    """Replaces numpy.dtype; records the type code."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code.decode("latin-1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and the like: only single bytes are used."""


class _Array:
    """Replaces numpy.ndarray; records shape, type and content."""

    def __init__(self) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_array(self) -> npt.NDArray[np.uint8]:
        """Return the array, which must be of unsigned bytes."""
        _, shape, kind, fortran, raw = self.state
        if not isinstance(kind, _Type) or kind.code not in ("u1", "|u1", "uint8"):
            raise ValueError("an array that is not of bytes")
        if isinstance(raw, str):
            raw = raw.encode("latin-1")
        flat = np.frombuffer(raw, dtype=np.uint8)
        return flat.reshape(tuple(int(n) for n in shape), order="F" if fortran else "C")


class _Call:
    """A class without instances that replaces a function."""

    def __setstate__(self, state: Any) -> None:
        """Do nothing: a pickle must not be able to change the class."""


class _Reconstruct(_Call):
    """Replaces _reconstruct of NumPy; returns an empty record."""

    def __new__(cls, *_: Any) -> Any:
        """Return a record whose state follows in the pickle."""
        return _Array()


class _FromBuffer(_Call):
    """Replaces _frombuffer of NumPy, with which protocol 5 pickles arrays."""

    def __new__(cls, raw: Any, kind: Any, shape: Any, order: Any, *_: Any) -> Any:
        """Return the record of the array."""
        record = _Array()
        record.state = 1, shape, kind, order == "F", raw
        return record


class _Encode(_Call):
    """Replaces _codecs.encode, with which old protocols pickle bytes."""

    def __new__(cls, text: Any, encoding: Any = "latin1", *_: Any) -> Any:
        """Return the bytes."""
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError("an encoding other than latin1")
        return text.encode("latin-1")


_ALLOWED: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _FromBuffer,
    ("numpy._core.numeric", "_frombuffer"): _FromBuffer,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _Encode,
}


class _Refused(pickle.UnpicklingError):
    """The pickle uses a name that images do not need."""


class _BatchUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return the replacement of a name; raise if it has none."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def read_batch(content: bytes, source: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the images [n, 3072] and labels [n] of a pickled batch."""
    try:
        tree = _BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    except _Refused as error:
        named = " ".join(str(error).split())[:80]
        raise FormatError(
            f"{source}: the pickle uses {named}, which images do not need; it is not read"
        ) from error
    except Exception as error:
        # A broken pickle can raise many types; no code of the pickle was executed.
        raise FormatError(f"{source}: not a readable CIFAR-10 batch") from error
    try:
        images = _entry(tree, "data").bytes_array()
        labels = np.array(_entry(tree, "labels"))
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise ValueError("labels")
    except Exception as error:
        raise FormatError(
            f"{source}: not a CIFAR-10 batch; expected 'data' (bytes) and 'labels' (integers)"
        ) from error
    return images, labels.astype(np.int64)


def _entry(tree: Any, name: str) -> Any:
    return tree[name.encode()] if name.encode() in tree else tree[name]
