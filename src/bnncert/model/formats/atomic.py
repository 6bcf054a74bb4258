"""Atomic writing of files: after a crash, a file has its old content or all of its new content."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bnncert.errors import InputError, MissingFileError


class UnwritableError(InputError):
    """A file cannot be written: its disk is full, or it must not be replaced."""

    path: Path = Path()
    reason: str = ""

    @staticmethod
    def of(path: str | os.PathLike[str], reason: str) -> UnwritableError:
        """Make the error about a file, which names it and the reason."""
        error = UnwritableError(f"{path}: cannot be written ({reason})")
        error.path, error.reason = Path(path), reason
        return error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` when the block ends.

    The content is written to a temporary file in the same folder.  If the block raises an
    exception, also for Ctrl-C, the temporary file is removed and `path` is unchanged.  The name of
    the temporary file has the suffix of `path`, so that it can be read back inside the block.
    Raises UnwritableError, which names `path`, if the file cannot be written.
    """
    # A symbolic link stays a link: the file that it points to is replaced.
    real = Path(os.path.realpath(path))
    try:
        if real.exists() and not real.is_file():
            # A device or a pipe must not be replaced by a regular file.
            with real.open("wb") as device:
                yield device
            return
        if real.exists() and not os.access(real, os.W_OK):
            # os.replace does not need permission to write the old file, so that is checked here.
            raise PermissionError(None, "Permission denied")
        # The name of the target is not part of the name: it may have the maximum length.
        part = real.with_name(f".bnncert-{secrets.token_hex(8)}{real.suffix[:16]}")
        try:
            # "x" fails if the name exists, so a link at that name is not followed.
            with part.open("xb") as file:
                if real.exists() and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), stat.S_IMODE(real.stat().st_mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, real)
        finally:
            part.unlink(missing_ok=True)
    except MissingFileError:
        # Of a file that was to be read inside the block.
        raise
    except OSError as error:
        raise UnwritableError.of(path, error.strerror or str(error)) from error


@contextmanager
def writing_for(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Let an error about a file that is written on the way name `path`, which the user knows.

    Without a `path` errors are as they are.
    """
    try:
        yield
    except UnwritableError as error:
        if path is None:
            raise
        reason, folder = error.reason, Path(tempfile.gettempdir())
        if error.path.is_relative_to(folder) and error.path.parent != Path(path).parent:
            # The temporary folder may be on another disk, which the user can choose.
            reason = f"{reason.removesuffix(f' in {folder}')} in {folder}"
        raise UnwritableError.of(path, reason) from error


@contextmanager
def folder_for(path: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Yield a temporary folder for the parts of a file; errors about them name the file."""
    with writing_for(path):
        try:
            folder = tempfile.TemporaryDirectory(prefix="bnncert-")
        except OSError as error:
            raise UnwritableError.of(tempfile.gettempdir(), error.strerror or str(error)) from error
        with folder as name:
            yield Path(name)


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Replace the content of a file atomically, or raise InputError; text is written in UTF-8."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def file_identity(path: str | os.PathLike[str]) -> tuple[int, int] | str | None:
    """Make a key that is equal for two paths to the same file, also through links.

    The file need not exist.  The key of devices and pipes is None, because writing to them does
    not destroy data.
    """
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if they do not exist; raise InputError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror or error})") from error
