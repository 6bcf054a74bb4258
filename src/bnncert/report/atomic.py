"""Files that are either the old or the new one, whenever the power goes."""

from __future__ import annotations

import os
from pathlib import Path

from bnncert.errors import InputError


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content at once.

    Raises
    ------
    InputError
        If it cannot be written; an old file is then as it was.
    """
    real = Path(os.path.realpath(path))
    try:
        if real.exists() and not real.is_file():
            # A device or a pipe: it has to stay what it is.
            real.write_text(text, encoding="utf-8")
            return
        part = real.with_name(f".{real.name}.{os.getpid()}.part")
        try:
            with part.open("w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, real)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
