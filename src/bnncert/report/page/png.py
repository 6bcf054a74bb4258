"""PNG files from arrays of bytes: grey (height, width) or colour (height, width, 3)."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt


def png_bytes(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return the file; 8 bits a sample, no filter, one block of data."""
    colour = pixels.ndim == 3
    height, width = pixels.shape[:2]
    lines = np.ascontiguousarray(pixels).reshape(height, -1)
    # Each line begins with its filter, 0 for none.
    raw = np.hstack([np.zeros((height, 1), dtype=np.uint8), lines]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if colour else 0, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(raw, 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)
