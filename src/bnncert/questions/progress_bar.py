"""The progress of a question in Python: a bar in a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Callable[[str, int, int], None]]:
    """Show what a question is doing while it runs; the bar disappears at the end of the block.

    In a notebook it needs the extra `notebook`.  Where there is neither a notebook nor a terminal,
    nothing is shown.

    Parameters
    ----------
    console
        Where the bar is shown (default: the notebook, or standard error).

    Returns
    -------
    context manager
        Its value is the argument `progress` of :func:`verify` and the other questions.

    Examples
    --------
    >>> import bnncert
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> ball = bnncert.Ball("linf", [0.5, 0], 0.2)
    >>> with bnncert.progress_bar() as progress:
    ...     result = bnncert.verify(net, ball, label=0, timeout=60, progress=progress)
    >>> result.status
    'robust'
    """
    place = console or Console(stderr=True)
    bar = Progress(
        SpinnerColumn(),
        # Names of targets come from files, and are no markup.
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        console=place,
        transient=True,
        disable=not (place.is_terminal or place.is_jupyter),
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def show(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total or None)

        yield show
