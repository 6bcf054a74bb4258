"""Model files of any format, read and written.

The format of a file is determined by its content (gzip, zip, HDF5, JSON or protobuf), and by its
suffix only where the content does not decide it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from bnncert.errors import FormatError, InputError
from bnncert.model.description import ModelDescription
from bnncert.model.formats.atomic import replacing
from bnncert.model.formats.file_content import (
    DEFAULT_LIMITS,
    ZIP_MAGIC,
    Limits,
    open_archive,
    read_bytes,
    read_member,
)
from bnncert.model.formats.weight_arrays import read_json, read_npz, write_json, write_npz

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"

#: The first bytes of checkpoints from before PyTorch used zip archives.
_OLD_CHECKPOINT_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."

#: Suffixes of zip archives.
_ARCHIVES = (".npz", ".keras", ".pt", ".pth")

#: Modules of what the pickle of tensors, or of a dictionary of them, begins with.
_TENSOR_MODULES = ("torch", "torch._utils", "torch._tensor", "collections")

#: How the file of weights of a Keras model is named after the model.
_ENDINGS = (".weights.h5", "_weights.h5", ".h5", "_weights.hdf5", ".hdf5")


def read_description(
    path: Path, layers: Path | None = None, limits: Limits = DEFAULT_LIMITS
) -> ModelDescription:
    """Read a model file of any supported format.

    `layers` describes the layers of a PyTorch checkpoint, or of a Keras file with weights only; by
    default it is ``net.layers.json`` beside ``net.pt``, and ``net.json`` beside ``net.weights.h5``.
    """
    content = read_bytes(path, limits)
    source = str(path)
    if not content:
        raise FormatError(f"{source}: the file is empty")
    family = _family(content, path, limits)
    if family == "checkpoint":
        return _read_checkpoint(content, path, layers, limits)
    if family == "keras":
        config = None if layers is None else read_bytes(layers, limits)
        return _read_keras(content, path, limits, config, source)
    if layers is not None:
        raise FormatError(
            f"{source}: neither a PyTorch checkpoint nor weights of Keras; only these need a file "
            "of layers"
        )
    if content.startswith(ZIP_MAGIC):
        return read_npz(content, source, limits)
    if content[:64].lstrip()[:1] in (b"{", b"["):
        if _is_configuration(content):
            beside = _weights_beside(path)
            return _read_keras(read_bytes(beside, limits), beside, limits, content, source)
        return read_json(content, source, limits)
    if path.suffix in (".npz", ".json"):
        raise FormatError(
            f"{source}: the content is not {path.suffix}, or there is none; expected the arrays "
            "W0, b0, W1, b1, ..."
        )
    # Readers are imported on use: importing onnx takes half a second.
    from bnncert.model.formats.onnx.reader import read_onnx

    return read_onnx(content, source, path.parent, limits)


def takes_layers(path: Path) -> bool:
    """Whether a file may have weights only, whose layers another file describes."""
    return _family(read_bytes(path), path, DEFAULT_LIMITS) is not None


def _family(content: bytes, path: Path, limits: Limits) -> Literal["keras", "checkpoint"] | None:
    """Recognise files of Keras and PyTorch, None for other files."""
    if content.startswith(ZIP_MAGIC):
        kind = path.suffix if path.suffix in _ARCHIVES else "zip"
        with open_archive(content, path, kind, limits) as archive:
            members = archive.namelist()
        if any(name.endswith("/data.pkl") for name in members):
            return "checkpoint"
        if "config.json" in members and "model.weights.h5" in members:
            return "keras"
    if content.startswith(_OLD_CHECKPOINT_MAGIC) or path.suffix in (".pt", ".pth", ".safetensors"):
        return "checkpoint"
    if content.startswith(_HDF5_MAGIC) or path.suffix in (".h5", ".hdf5", ".keras"):
        return "keras"
    return None


def _read_keras(
    content: bytes, path: Path, limits: Limits, config: bytes | None, source: str
) -> ModelDescription:
    """Read a Keras model, or weights in `path` whose layers are in a JSON file, `config`."""
    from bnncert.model.formats.keras.archive import has_configuration
    from bnncert.model.formats.keras.reader import read_keras

    if config is None and not has_configuration(content, str(path)):
        layers = _layers_beside(path)
        config = None if layers is None else read_bytes(layers, limits)
    elif source != str(path):
        # A file that cannot be opened is reported under its own name.
        has_configuration(content, str(path))
    return read_keras(content, source, limits, config)


def _read_checkpoint(
    content: bytes, path: Path, layers: Path | None, limits: Limits
) -> ModelDescription:
    from bnncert.model.formats.torch.checkpoint import read_checkpoint

    whole = None if path.suffix == ".safetensors" else _pickled_class(content, path, limits)
    if whole is not None:
        raise FormatError(
            f"{path}: a whole pickled model (its class is {whole}), which cannot be read without "
            "running code; save model.state_dict(), or export it to ONNX, or call "
            "bnncert.from_torch(model, input_shape) and save the network"
        )
    beside = path.with_suffix(".layers.json")
    if layers is None and not beside.exists():
        raise FormatError(
            f"{path}: a PyTorch checkpoint has weights only; describe its layers in {beside.name} "
            "beside it, or in the file that --layers names"
        )
    described = beside if layers is None else layers
    return read_checkpoint(content, str(path), read_bytes(described, limits), str(described))


def _pickled_class(content: bytes, path: Path, limits: Limits) -> str | None:
    """Find the class of a module that a file holds as a whole; None for tensors by name.

    The instructions of the pickle are looked at, and none is executed.
    """
    # Imported on use: most files have no pickle.
    import pickletools

    pickled = content
    if content.startswith(ZIP_MAGIC):
        with open_archive(content, path, "PyTorch", limits) as archive:
            names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            pickled = read_member(archive, names[0]) if names else b""
    stream = io.BytesIO(pickled)
    # Old files are several pickles, one after the other.
    while stream.tell() < len(pickled):
        is_open = True
        try:
            for code, argument, _ in pickletools.genops(stream):
                if is_open and code.name == "GLOBAL":
                    module, name = str(argument).split()
                    if module not in _TENSOR_MODULES:
                        return f"{module}.{name}"
                is_open = is_open and code.name not in ("GLOBAL", "EMPTY_DICT", "EMPTY_LIST")
        except Exception:  # broken pickles, and the bytes of tensors behind them
            return None
    return None


def _is_configuration(content: bytes) -> bool:
    """Whether a JSON document looks like the layers of a Keras model."""
    return b'"class_name"' in content and b'"config"' in content and b'"W0"' not in content


def _weights_beside(path: Path) -> Path:
    """Find the file with the weights of the model whose layers are in `path`."""
    name = path.name.removesuffix(".json")
    found = [path.with_name(name + ending) for ending in _ENDINGS]
    found = [file for file in found if file.exists()]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(file.name for file in found)
        raise FormatError(
            f"{path}: several files may have its weights ({listed}); give that file, or keep one"
        )
    raise FormatError(
        f"{path}: the layers of a Keras model without weights; expected {name}.weights.h5, "
        f"{name}_weights.h5 or {name}.h5 beside it (model.save_weights), or save the whole model"
    )


def _layers_beside(path: Path) -> Path | None:
    """Find the JSON file with the layers of the weights in `path`, None if there is none."""
    for ending in _ENDINGS:
        if path.name.endswith(ending):
            file = path.with_name(path.name.removesuffix(ending) + ".json")
            if file.exists():
                return file
    return None


def write_description(
    description: ModelDescription, path: Path, check: Callable[[Path], None] | None = None
) -> None:
    """Write a model in the format that the suffix names.

    `check` is called with the path of the complete file before it replaces `path`; if it raises
    an exception, nothing is written.
    """
    if path.suffix not in (".npz", ".json", ".onnx"):
        raise InputError(f"{path}: cannot write {path.suffix!r}; use .npz, .json or .onnx")
    with replacing(path) as file:
        if path.suffix == ".npz":
            write_npz(description, file)
        elif path.suffix == ".json":
            write_json(description, file)
        else:
            from bnncert.model.formats.onnx.writer import write_onnx

            write_onnx(description, file, path)
        if check is not None:
            file.flush()
            check(Path(file.name))
