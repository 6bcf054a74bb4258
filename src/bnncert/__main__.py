"""The entry point of `bnncert` and `python -m bnncert`."""

from __future__ import annotations

import signal

from bnncert.cli.interrupts import (
    leave,
    leaving_on_interrupt,
    listens_to_interrupts,
    raise_lost_interrupts,
)


def main() -> None:
    """Run the command line; Ctrl-C at any time ends it with one line."""
    listens = listens_to_interrupts()
    if listens:
        raise_lost_interrupts()
    try:
        with leaving_on_interrupt():
            from bnncert.cli.program import main as run
        run()
    except KeyboardInterrupt:
        leave(signal.SIGINT, None)
    finally:
        if listens:
            # Ctrl-C may also occur while Python shuts down.
            signal.signal(signal.SIGINT, leave)


if __name__ == "__main__":
    main()
