"""PyTorch models, checkpoints and safetensors files."""
