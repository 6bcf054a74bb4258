"""Checkpoints of trainings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bnncert.errors import FormatError, InputError
from tests.extras.training.tiny import blobs

torch: Any = pytest.importorskip("torch", reason="needs the extra 'train'")
from tests.extras.training.trained import SMALL, train  # noqa: E402


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    train(replace(SMALL, epochs=1), checkpoint=state)
    content = state.read_bytes()
    for other, word in (
        (replace(SMALL, epochs=2), "epochs"),
        (replace(SMALL, epochs=1, hidden=(24,)), "hidden 24,16, not 24"),
        (replace(SMALL, epochs=1, seed=1), "seed"),
    ):
        with pytest.raises(InputError, match=word) as error:
            train(other, checkpoint=state)
        assert str(state) in str(error.value)
    with pytest.raises(InputError, match="data"):
        train(replace(SMALL, epochs=1), blobs(300, 3), checkpoint=state)
    assert state.read_bytes() == content
    for broken in (b"", b"text", content[: len(content) // 2]):
        state.write_bytes(broken)
        with pytest.raises(FormatError, match="not a checkpoint") as broken_error:
            train(replace(SMALL, epochs=1), checkpoint=state)
        assert "\n" not in str(broken_error.value)


def test_a_checkpoint_is_never_unpickled_freely(tmp_path: Path) -> None:
    class Mischief:
        def __reduce__(self) -> Any:
            return Path.mkdir, (tmp_path / "trace",)

    state = tmp_path / "state"
    torch.save({"format": "bnncert training 1", "identity": Mischief()}, state)
    with pytest.raises(FormatError, match="not a checkpoint"):
        train(checkpoint=state)
    assert not (tmp_path / "trace").exists()
