"""The command line from its first moment: `bnncert` and `python -m bnncert` start here.

Importing the commands takes a second, in which Ctrl-C must not end in a traceback either.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line."""
    # A process in the background may have been told to ignore Ctrl-C.
    listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if listens:
            # Not as an exception, which the import of a library might take for its own.
            signal.signal(signal.SIGINT, _leave)
        from bnncert.cli import main as run

        if listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:
        _leave(signal.SIGINT, None)
    finally:
        if listens:
            # While Python ends, too.
            signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"bnncert: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
