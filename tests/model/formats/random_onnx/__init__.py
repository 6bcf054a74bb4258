"""Random ONNX graphs of binary networks, and their comparison with onnxruntime.

Every form of every operator that bnncert reads has a name ("Max, 3 inputs") and a function that
adds it to a graph: `constants` for what is folded while a file is read, `values` for what the
network computes.  `graphs` puts them together, `comparison` runs them.
"""
