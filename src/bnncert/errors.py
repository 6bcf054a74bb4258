"""The exceptions of bnncert.

Every message is one line that names the file or argument, the place in it, what was found and what
was expected.  The command line prints this line and exits with code 2.
"""

from __future__ import annotations

#: The largest number of characters of a message; names in broken files can have any length.
LONGEST_MESSAGE = 1000


class BnncertError(Exception):
    """Base class of the exceptions of bnncert; its message is one printable line."""

    def __init__(self, message: str = "") -> None:
        # Names come from files: a control character could change what a terminal shows.
        line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
        if len(line) > LONGEST_MESSAGE:
            half = LONGEST_MESSAGE // 2
            line = f"{line[:half]} ... {line[-half:]}"
        super().__init__(line)


class InputError(BnncertError, ValueError):
    """An argument, array, region or option is not usable."""


class OutsideDataBoxWarning(UserWarning):
    """The centre of a ball lies outside the data box of the network."""


class FormatError(InputError):
    """A file cannot be read: broken, truncated, or of an unknown kind."""


class MissingFileError(FormatError, FileNotFoundError):
    """A file is not there; it is also Python's own FileNotFoundError, which callers expect."""


class UnsupportedModelError(FormatError):
    """A model file is well formed, but its model is not a supported binary neural network."""


class MissingExtraError(BnncertError):
    """A method needs an optional package that is not installed."""


def reason(error: BaseException) -> str:
    """Return the first line of the message of a foreign exception, or else its type."""
    lines = str(error).splitlines()
    return (lines[0].strip() if lines else "") or type(error).__name__


def failure_text(error: Exception) -> str:
    """Return a line that describes any exception of a computation."""
    if isinstance(error, MemoryError):
        return "out of memory"
    known = isinstance(error, BnncertError)
    return " ".join((str(error) if known else f"{type(error).__name__}: {error}").split())
