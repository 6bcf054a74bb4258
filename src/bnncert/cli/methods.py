"""`bnncert methods`: the table of methods."""

from __future__ import annotations


def methods() -> None:
    """Print the methods, what they promise and what they need."""
    from bnncert.cli.consoles import wide_console
    from bnncert.report.tables import methods_table

    wide_console().print(methods_table())
