"""Models that are saved as a pair: the layers as JSON, and the weights in an HDF5 file beside it.

``model.json`` (from ``model.to_json()``) belongs to ``model.weights.h5``, ``model_weights.h5`` or
``model.h5`` in the same folder (from ``model.save_weights(..)``).
"""

from __future__ import annotations

from pathlib import Path

from bnncert.errors import FormatError

#: How the file of weights is named after the model.
_ENDINGS = (".weights.h5", "_weights.h5", ".h5", "_weights.hdf5", ".hdf5")


def is_configuration(content: bytes) -> bool:
    """Return whether a JSON document looks like the layers of a Keras model."""
    return b'"class_name"' in content and b'"config"' in content and b'"W0"' not in content


def weights_beside(path: Path) -> Path:
    """Return the file with the weights of the model whose layers are in `path`."""
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


def layers_beside(path: Path) -> Path | None:
    """Return the JSON file with the layers of the weights in `path`, None if there is none."""
    for ending in _ENDINGS:
        if path.name.endswith(ending):
            file = path.with_name(path.name.removesuffix(ending) + ".json")
            if file.exists():
                return file
    return None
