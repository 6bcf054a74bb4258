"""The file formats of Keras, read without executing any code in them.

* ``.h5``: HDF5; the attribute ``model_config`` is the model as JSON, the group ``model_weights``
  has one group for each layer, whose attribute ``weight_names`` lists its arrays.
* ``.keras``: a zip with ``config.json`` and ``model.weights.h5``; in the latter, layers are
  numbered by class (``quant_dense``, ``quant_dense_1``, ..) and arrays by position.
* a pair of ``model.to_json()`` and ``model.save_weights(..)``: the configuration as JSON, and HDF5
  like ``model.weights.h5`` above (Keras 3) or like the group ``model_weights`` (Keras 2).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from bnncert.errors import BnncertError, FormatError, MissingExtraError, reason
from bnncert.model.formats.file_content import (
    DEFAULT_LIMITS,
    ZIP_MAGIC,
    Limits,
    open_archive,
    parse_json,
    read_member,
    too_large,
    too_many,
)
from bnncert.model.formats.layer_chain import FileLayer

#: Members of a .keras archive.
CONFIG_MEMBER, WEIGHTS_MEMBER = "config.json", "model.weights.h5"

#: Groups of a .keras file that may hold the layers, depending on the version of Keras.
LAYER_GROUPS = ("layers", "_layer_checkpoint_dependencies")


class KerasArchive:
    """A Keras file: its configuration, and the arrays of its layers.

    `config` is the configuration of a file that has weights only.
    """

    def __init__(
        self,
        content: bytes,
        source: str,
        limits: Limits = DEFAULT_LIMITS,
        config: bytes | None = None,
    ) -> None:
        self.source = source
        self.zipped = content.startswith(ZIP_MAGIC)
        self._limits = limits
        #: Bytes of the arrays that were read: compressed arrays can be much smaller in the file.
        self._read = 0
        self._pair = config is not None
        if self.zipped:
            if self._pair:
                raise FormatError(f"{source}: a whole model; it needs no file of layers")
            config, content = _unzipped(content, source, limits)
        self._file = _open(content, source)
        if config is None:
            config = self._model_config()
        self.config = _parsed(config, source)
        #: Whether layers are numbered by class, else they are named.
        self._is_numbered = self.zipped or (self._pair and self._has_numbers())

    def __enter__(self) -> KerasArchive:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _model_config(self) -> bytes:
        with _reading(self.source):
            text = self._file.attrs.get("model_config")
        if text is None:
            raise FormatError(
                f"{self.source}: no attribute model_config; expected a whole model as model.save "
                "writes it, not weights alone (or the layers as JSON beside it: model.to_json)"
            )
        # h5py returns bytes that are not UTF-8 as surrogates.
        return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")

    def _has_numbers(self) -> bool:
        """Whether the file has the layout of Keras 3."""
        with _reading(self.source):
            is_named = "layer_names" in self._file.attrs or "model_weights" in self._file
            return not is_named and any(root in self._file for root in LAYER_GROUPS)

    def arrays(
        self, layer: FileLayer, group: str, roles: Sequence[str]
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Read the arrays of a layer by role; they must be those that its configuration implies.

        `group` is the layer's place in a .keras file, see :func:`group_names`.
        """
        if not roles:
            return {}
        try:
            found = (
                self._numbered(layer, group, roles)
                if self._is_numbered
                else self._named(layer, roles)
            )
            return {role: self._array(layer, role, found[role]) for role in roles}
        except BnncertError:
            raise
        except Exception as error:  # h5py raises many types on broken files
            raise layer.broken(f"its weights cannot be read ({reason(error)})") from error

    def _numbered(self, layer: FileLayer, group: str, roles: Sequence[str]) -> dict[str, Any]:
        for root in LAYER_GROUPS:
            held = _child(_child(_child(self._file, root), group), "vars")
            if held is not None:
                break
        else:
            raise layer.broken(f"its weights (group {group}) are missing")
        stated = held.attrs.get("name")
        if stated is not None and str(stated) != layer.name:
            raise layer.broken(f"group {group} holds the weights of layer {stated}")
        if len(held) != len(roles):
            raise layer.broken(f"{len(held)} arrays; expected {', '.join(roles)}")
        return {role: _child(held, str(number)) for number, role in enumerate(roles)}

    def _named(self, layer: FileLayer, roles: Sequence[str]) -> dict[str, Any]:
        root = _child(self._file, "model_weights")
        if root is None and self._pair:
            root = self._file
        held = _child(root, layer.name)
        if held is None:
            raise layer.broken("its weights are missing")
        found = {}
        for name in _weight_names(held):
            role = name.rsplit("/", 1)[-1].split(":", 1)[0]
            # Keras 3 uses this name for the kernel of a depthwise convolution.
            if role == "kernel" and "kernel" not in roles:
                role = "depthwise_kernel"
            found[role] = _child(held, name)
        if sorted(found) != sorted(roles):
            raise layer.broken(
                f"has the arrays {', '.join(sorted(found)) or 'none'}; expected {', '.join(roles)}"
            )
        return found

    def _array(self, layer: FileLayer, role: str, data: Any) -> npt.NDArray[np.float32]:
        import h5py

        if not isinstance(data, h5py.Dataset):
            raise layer.broken(f"its {role} is missing")
        if data.is_virtual or data.external:
            raise layer.broken(f"its {role} is kept in another file")
        if data.dtype != np.float32:
            raise layer.broken(f"its {role} has type {data.dtype}; expected float32")
        if data.size is None:
            raise layer.broken(f"its {role} has no values")
        if data.size > self._limits.matrix:
            what = f"its {role} has shape {data.shape}"
            raise too_many(layer.place, what, self._limits.matrix, "matrix")
        self._read += data.nbytes
        if self._read > self._limits.file:
            raise too_large(self.source, "holds arrays of", self._limits.file, "file")
        array: npt.NDArray[np.float32] = np.asarray(data[()], dtype=np.float32)
        if not np.all(np.isfinite(array)):
            raise layer.unsupported(f"NaN or infinity in its {role}")
        return array


def has_configuration(content: bytes, source: str) -> bool:
    """Whether a Keras file contains the layers of the model, not its weights alone."""
    if content.startswith(ZIP_MAGIC):
        return True
    with _open(content, source) as file, _reading(source):
        return "model_config" in file.attrs


def group_names(kinds: Sequence[str]) -> list[str]:
    """Name the groups in which a .keras file keeps the layers of these classes, in order."""
    used: dict[str, int] = {}
    names = []
    for kind in kinds:
        name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", kind)
        name = re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
        number = used.get(name, 0)
        used[name] = number + 1
        names.append(f"{name}_{number}" if number else name)
    return names


def _unzipped(content: bytes, source: str, limits: Limits) -> tuple[bytes, bytes]:
    with open_archive(content, source, ".keras", limits) as archive:
        members = []
        for name in (CONFIG_MEMBER, WEIGHTS_MEMBER):
            if name not in archive.namelist():
                raise FormatError(f"{source}: {name} is missing in the archive")
            members.append(read_member(archive, name))
    return members[0], members[1]


def _open(content: bytes, source: str) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError(
            f"{source}: reading Keras files needs h5py: pip install bnncert[larq]"
        ) from error
    _check_heaps(content, source)
    with _reading(source):
        return h5py.File(io.BytesIO(content), "r")


def _check_heaps(content: bytes, source: str) -> None:
    """Raise for a heap of strings with inconsistent sizes, in which the HDF5 library may loop."""
    for found in re.finditer(rb"GCOL\x01\x00\x00\x00", content):
        begin = found.start()
        end = begin + int.from_bytes(content[begin + 8 : begin + 16], "little")
        place = begin + 16
        while place + 16 <= end:
            number = int.from_bytes(content[place : place + 2], "little")
            size = int.from_bytes(content[place + 8 : place + 16], "little")
            # Object 0 is the free space, whose size includes its header.
            step = 16 + -(-size // 8) * 8 if number else size
            if step < 16 or place + step > min(end, len(content)):
                raise FormatError(f"{source}: not a readable HDF5 file, broken or truncated (heap)")
            place += step


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """Convert what h5py raises on broken files."""
    try:
        yield
    except Exception as error:
        why = f"broken or truncated ({reason(error)})"
        raise FormatError(f"{source}: not a readable HDF5 file, {why}") from error


def _parsed(text: bytes, source: str) -> dict[str, Any]:
    tree = parse_json(text, f"{source}: the model's configuration")
    if not isinstance(tree, dict):
        raise FormatError(f"{source}: the model's configuration is not a JSON object")
    return tree


def _child(group: Any, path: str) -> Any:
    """Open a member of a group, None if it is absent; raise for links to other files."""
    import h5py

    for name in path.split("/"):
        if not isinstance(group, h5py.Group) or name not in group:
            return None
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name} is a link to another place")
        group = group[name]
    return group


def _weight_names(group: Any) -> list[str]:
    """Read the attribute weight_names, which Keras splits into several ones when it is long."""
    names: list[Any] = []
    if "weight_names" in group.attrs:
        names = list(group.attrs["weight_names"])
    else:
        number = 0
        while f"weight_names{number}" in group.attrs:
            names += list(group.attrs[f"weight_names{number}"])
            number += 1
    return [name.decode() if isinstance(name, bytes) else str(name) for name in names]
