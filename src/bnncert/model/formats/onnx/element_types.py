"""The element types of ONNX tensors that are read."""

from __future__ import annotations

import onnx

#: Element types of constants: bool, integers, float16, float32 and float64.
PLAIN_TYPES = frozenset(
    int(onnx.TensorProto.DataType.Value(name))
    for name in (
        *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        *("FLOAT16", "FLOAT", "DOUBLE"),
    )
)
