"""Downloads from public mirrors; a file is kept only if its checksum is the published one."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from bnncert.errors import InputError
from bnncert.model.formats.atomic import make_folder, replacing

#: Seconds without a response after which the next mirror is tried.
PATIENCE = 30.0

BLOCK = 2**20

#: Called with (file name, bytes so far, bytes in all or None).
FetchProgress: TypeAlias = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class RemoteFile:
    """A file by name, the addresses that offer it, and its SHA-256."""

    name: str
    addresses: tuple[str, ...]
    sha256: str


def fetch(
    remote: RemoteFile,
    folder: Path,
    *,
    progress: FetchProgress | None = None,
    patience: float = PATIENCE,
) -> Path:
    """Download a file to `folder` from the first mirror that has it, and return its path.

    The file is written atomically, after its checksum is verified.
    """
    target = folder / remote.name
    failures = []
    make_folder(folder)
    for address in remote.addresses:
        try:
            with replacing(target) as file:
                _download(address, file, remote, progress, patience)
            return target
        except _MirrorError as error:
            failures.append(f"{address}: {error}")
    raise InputError(
        f"{target}: not there, and could not be fetched ({'; '.join(failures)}); "
        "put the file there, or name a folder that has it with --data-dir"
    )


def _download(
    address: str,
    file: BinaryIO,
    remote: RemoteFile,
    progress: FetchProgress | None,
    patience: float,
) -> None:
    """Download one address; raise a _MirrorError if that fails."""
    digest, done, total = hashlib.sha256(), 0, None
    for block, total in _blocks(address, patience):
        digest.update(block)
        done += len(block)
        file.write(block)
        if progress is not None:
            progress(remote.name, done, total)
    if total is not None and done < total:
        raise _MirrorError(f"{done} of {total} bytes arrived")
    if digest.hexdigest() != remote.sha256:
        raise _MirrorError(
            f"wrong checksum (SHA-256 {digest.hexdigest()[:12]}.., not {remote.sha256[:12]}..)"
        )


def _blocks(address: str, patience: float) -> Iterator[tuple[bytes, int | None]]:
    """Yield the content of an address, each block with the stated size of all, if there is one.

    Errors of writing the blocks do not arise here, so that all errors are those of the mirror.
    """
    try:
        with urllib.request.urlopen(address, timeout=patience) as answer:
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while block := answer.read(BLOCK):
                yield block, total
    except urllib.error.HTTPError as error:
        raise _MirrorError(f"HTTP status {error.code}") from error
    except urllib.error.URLError as error:
        raise _MirrorError(f"no connection ({_reason(error.reason)})") from error
    except http.client.HTTPException as error:
        raise _MirrorError(f"broken answer ({type(error).__name__})") from error
    except (OSError, ValueError) as error:
        raise _MirrorError(f"no connection ({_reason(error)})") from error


class _MirrorError(Exception):
    """A download failed."""


def _reason(error: object) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())
