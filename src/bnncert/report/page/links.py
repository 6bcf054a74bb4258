"""Links of a page to certificates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote


def certificate_link(certificate: str, results: Path, page: Path) -> dict[str, Any]:
    """Return the address relative to the page; `certificate` is relative to the results file."""
    file = results.resolve().parent / certificate
    try:
        address = os.path.relpath(file, page.resolve().parent)
    except ValueError:
        # The paths are on different drives (Windows).
        address = str(file)
    # With "./" in front and escaped colons, no part of a name is interpreted as a URL scheme.
    prefix = "" if address.startswith((".", "/")) else "./"
    address = prefix + quote(address.replace(os.sep, "/"))
    try:
        there = file.is_file()
    except (OSError, ValueError):
        # Not a valid file name.
        there = False
    return {"name": Path(certificate).name, "href": address, "there": there}
