"""Keras, Larq and QKeras model files, ``.h5`` and ``.keras``, read without TensorFlow."""

from __future__ import annotations

from dataclasses import replace

from bnncert.model.description import ModelDescription
from bnncert.model.formats.keras.archive import KerasArchive
from bnncert.model.formats.keras.execution import keras_execution
from bnncert.model.formats.keras.layers import apply_layer, roles_of
from bnncert.model.formats.keras.model import parse_model
from bnncert.model.formats.layer_chain import Chain
from bnncert.model.formats.limits import DEFAULT_LIMITS, Limits


def read_keras(
    content: bytes, source: str, limits: Limits = DEFAULT_LIMITS, config: bytes | None = None
) -> ModelDescription:
    """Read a network from the bytes of a Keras file; `config` describes a file of weights only."""
    with KerasArchive(content, source, limits, config) as archive:
        model = parse_model(archive.config, source)
        chain = Chain(source, model.input_shape)
        for configured in model.layers:
            layer = configured.layer
            with layer.reading():
                arrays = archive.arrays(layer, configured.group, roles_of(configured))
                apply_layer(chain, configured, arrays)
        execution = keras_execution(content, config, model.input_shape)
        return replace(chain.description("keras"), execution=execution)
