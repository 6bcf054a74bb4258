"""Training of ternary and binary networks that load back exactly (extra `train`, PyTorch).

The data sets, `training_options` and `train` are imported without PyTorch; `train` imports the
other modules when it runs.
"""
