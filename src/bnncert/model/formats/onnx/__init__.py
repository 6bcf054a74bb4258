"""ONNX models: reading, exact folding of constants, writing."""
