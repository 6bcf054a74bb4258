"""Training of ternary and binary networks that load back exactly (extra `train`, PyTorch).

Only :mod:`bnncert.training.options` may be imported without PyTorch; everything else is imported
by the command when it runs.
"""
