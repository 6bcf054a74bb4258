"""ONNX models: reading, exact folding of constants, writing; and here, execution by onnxruntime."""

from __future__ import annotations

import importlib.util

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.model.description import CannotExecuteError, Execution


class OnnxSession:
    """The bytes of a model, executed by onnxruntime.

    With `as_written`, every node is executed as the file has it, without a fusion that rounds
    otherwise.
    """

    def __init__(self, content: bytes, *, as_written: bool = False) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4 if as_written else 3
        if as_written:
            level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.graph_optimization_level = level
        self._session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0]
        #: The floating-point type of the model's input.
        self.dtype = np.float64 if "double" in self._input.type else np.float32

    def scores(self, point: FloatArray) -> FloatArray:
        """Execute the model at one point."""
        shape = [d if isinstance(d, int) and d > 0 else 1 for d in self._input.shape]
        array = point.astype(self.dtype).reshape(shape)
        output = self._session.run(None, {self._input.name: array})[0]
        return np.asarray(output, dtype=np.float64).reshape(-1)


def onnx_execution(content: bytes) -> Execution:
    """Let onnxruntime execute the bytes of a model."""

    def outputs(points: FloatArray) -> FloatArray:
        if importlib.util.find_spec("onnxruntime") is None:
            raise CannotExecuteError("is not installed (pip install bnncert[replay])")
        try:
            session = OnnxSession(content, as_written=True)
            # Some models are exported for one point at a time, whatever they declare.
            return np.stack([session.scores(point) for point in points])
        except Exception as error:  # onnxruntime has no exception of its own
            raise CannotExecuteError("does not execute this model") from error

    return Execution("onnxruntime", outputs)
