"""The entry point of `bnncert` and `python -m bnncert`."""

from __future__ import annotations


def main() -> None:
    """Run the command line; Ctrl-C at any time ends it with one line.

    Nothing is imported outside of the block, not even what handles Ctrl-C.
    """
    try:
        _run()
    except KeyboardInterrupt:
        import os

        os.write(2, b"bnncert: interrupted\n")
        os._exit(130)


def _run() -> None:
    import signal

    from bnncert.cli.exit_codes import (
        leave,
        leaving_on_interrupt,
        listens_to_interrupts,
        raise_lost_interrupts,
    )

    listens = listens_to_interrupts()
    if listens:
        raise_lost_interrupts()
    try:
        with leaving_on_interrupt():
            from bnncert.cli.program import main as run
        run()
    finally:
        if listens:
            # Ctrl-C may also occur while Python shuts down.
            signal.signal(signal.SIGINT, leave)


if __name__ == "__main__":
    main()
