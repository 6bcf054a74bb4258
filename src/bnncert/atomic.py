"""The only way in which files are written: a file has its old content or all of the new one."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bnncert.errors import InputError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `path` when the block ends.

    The content goes to a file of a random name in the same folder.  If the block raises anything,
    Ctrl-C included, that file is removed and an older file at `path` stays as it was.  Its name
    has the suffix of `path`, so that what was written can be read back inside the block.

    Raises
    ------
    InputError
        If the file cannot be written.  The message names `path`.
    """
    # A symbolic link stays a link: the file that it points to is replaced.
    real = Path(os.path.realpath(path))
    try:
        if real.exists() and not real.is_file():
            # A device or a pipe has to stay what it is.
            with real.open("wb") as device:
                yield device
            return
        if real.exists() and not os.access(real, os.W_OK):
            # Replacing needs no permission for the old file, so it would go unnoticed.
            raise PermissionError(None, "Permission denied")
        # The name does not contain that of the target, which may be as long as names can be.
        part = real.with_name(f".bnncert-{secrets.token_hex(8)}{real.suffix[:16]}")
        try:
            # "x": fails if the name exists, and follows no link that somebody put there.
            with part.open("xb") as file:
                if real.exists() and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), stat.S_IMODE(real.stat().st_mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, real)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace a file's content at once; text is written in UTF-8.

    Raises
    ------
    InputError
        If it cannot be written; an old file is then as it was.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def file_identity(path: str | os.PathLike[str]) -> tuple[int, int] | str | None:
    """Return what two paths have in common that lead to one file, through links of any kind.

    A file that does not exist yet counts too.  Devices and pipes have none: writing there
    destroys nothing.
    """
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if they do not exist.

    Raises
    ------
    InputError
        If the folder cannot be created.  The message names it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror or error})") from error
