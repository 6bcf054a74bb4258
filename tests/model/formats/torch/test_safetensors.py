"""Files in the .safetensors format."""

from __future__ import annotations

from pathlib import Path

import pytest

import bnncert
from bnncert.errors import FormatError

torch = pytest.importorskip("torch", reason="needs the extra 'train'")
nn = torch.nn
from tests.model.formats.torch.models import DENSE_LAYERS, write_layers  # noqa: E402


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"[1]", "the header is not a JSON object"),
        (b"{", "the header:1: not valid JSON"),
        (b'{"a": 3}', "tensor a: malformed"),
        (b'{"a": {"dtype": "F8", "shape": [1], "data_offsets": [0, 4]}}', "type F8; expected F64"),
        (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 40]}}', "outside the file"),
        (b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}', "tensor a: malformed"),
    ],
)
def test_refused_safetensors(header: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    layers = write_layers(tmp_path / "layers.json", DENSE_LAYERS)
    with pytest.raises(FormatError, match=r"net\.safetensors: ") as caught:
        bnncert.load(path, layers)
    assert expected in str(caught.value)
