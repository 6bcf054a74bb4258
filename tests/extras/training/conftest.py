"""Training in tests: one thread each, because the tests themselves run side by side."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
