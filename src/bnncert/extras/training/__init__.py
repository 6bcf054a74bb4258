"""Training of ternary and binary networks that load back exactly (extra `train`, PyTorch).

The data sets and `train` do not import PyTorch; the other modules are imported by the
command when it runs.
"""
