"""Reading a VNN-LIB query of any version."""

from __future__ import annotations

import os

from bnncert.model.formats.file_content import read_bytes
from bnncert.model.formats.limits import DEFAULT_LIMITS
from bnncert.problem.vnnlib.messages import error_at
from bnncert.problem.vnnlib.query import Specification
from bnncert.problem.vnnlib.version1 import TOKEN, parse_version1


def read_vnnlib(path: str | os.PathLike[str]) -> Specification:
    """Read a VNN-LIB 1.0 or 2.0 file, plain or gzip-compressed.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    Specification
        The query, for :func:`bnncert.verify_specification`.

    Raises
    ------
    FormatError
        If the file cannot be read or is not a VNN-LIB query that is supported.
    MissingExtraError
        If the file is VNN-LIB 2.0 and the package that parses it is not installed.

    Examples
    --------
    >>> import os, tempfile, bnncert
    >>> text = "(declare-const X_0 Real) (declare-const Y_0 Real)"
    >>> text += "(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= Y_0 0))"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "query.vnnlib")
    ...     with open(path, "w") as file:
    ...         _ = file.write(text)
    ...     query = bnncert.read_vnnlib(path)
    >>> query.input_count, query.output_count, len(query.disjuncts)
    (1, 1, 1)
    """
    name = os.fspath(path)
    data = read_bytes(path, most=DEFAULT_LIMITS.query, name="query")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{error.object[error.start]:02x}, which is not UTF-8"
        raise error_at(name, line, found, "UTF-8 text") from error
    return parse_vnnlib(text, name)


def parse_vnnlib(text: str, path: str = "<string>") -> Specification:
    """Parse the text of a VNN-LIB 1.0 or 2.0 query; `path` is its name in error messages.

    It raises what :func:`read_vnnlib` raises.
    """
    if _states_version(text):
        # Imported here because it needs an optional package, which version 1.0 does not need.
        from bnncert.problem.vnnlib.version2 import parse_version2

        return parse_version2(text, path)
    return parse_version1(text, path)


def _states_version(text: str) -> bool:
    """Whether the first command is ``vnnlib-version``, which VNN-LIB 1.0 does not have."""
    tokens = (t[0] for t in TOKEN.finditer(text) if t[0][0] not in "\n;")
    return next(tokens, "") == "(" and next(tokens, "") == "vnnlib-version"
