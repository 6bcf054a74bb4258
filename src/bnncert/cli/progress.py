"""Progress of long commands on stderr: one live line on a terminal, elsewhere a line now and then.

Both show what is done at the moment, how much of it is done, the elapsed time, and when it ends:
the time limit, or an estimate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from bnncert.cli.time_limit import process_age

#: Seconds before the first line and between two lines if there is no terminal.
LINE_SECONDS = 5.0

#: Seconds before the line on the question is printed, if there is no answer before.
OPENING_SECONDS = 0.5

#: The pause grows with this share of the elapsed time, up to this many seconds, so that the log of
#: a long run stays short.
LINE_SHARE, LONGEST_PAUSE = 0.02, 60.0


#: Prints the first line of a command.
Opening: TypeAlias = Callable[[], None]


class LiveLine:
    """The progress of one command.

    `limit` is its time limit in seconds.  `opening` prints a line on the question: with the answer,
    or after a moment, because errors in the question are the only output.
    """

    def __init__(
        self, console: Console, limit: float | None = None, opening: Opening | None = None
    ) -> None:
        self._console, self._limit, self._opening = console, limit, opening
        # The time limit counts from the start of the process.
        self._started = time.monotonic() - process_age()
        self._text, self._done, self._total, self._end = "starting", 0, 0, ""
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._is_live = console.is_terminal and not console.quiet
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=12),
            _TimeColumn(self),
            # On a narrow terminal only the text is cut.
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True)),
            expand=True,
            console=console,
            transient=True,
            disable=not self._is_live,
        )
        self._task = self._bar.add_task(self._text, total=None)

    def __call__(self, text: str, done: int, total: int) -> None:
        """Show the current step."""
        self.show(text, done, total)

    def show(self, text: str, done: int, total: int, end: str = "") -> None:
        """Show the current step, and when the whole work ends."""
        self._text, self._done, self._total, self._end = text, done, total, end
        words = self._words()
        self._bar.update(self._task, description=words, completed=done, total=total or None)

    def open(self) -> None:
        """Print the line on the question, once."""
        with self.paused():
            opening, self._opening = self._opening, None
            if opening is not None:
                opening()

    def line(self) -> str:
        """Write the line that a log gets now and then: the step and the times."""
        return f"{self._words()}, {self.times()}"

    def times(self) -> str:
        """Write the elapsed time, and the limit or the estimated end."""
        from bnncert.results.runner import duration

        elapsed = duration(time.monotonic() - self._started)
        if self._end:
            return f"{elapsed}, {self._end}"
        return elapsed if self._limit is None else f"{elapsed} of at most {duration(self._limit)}"

    def _words(self) -> str:
        counts = f" ({self._done} of {self._total})" if self._total > 1 else ""
        return self._text + counts

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the line while other output is printed, which it would overwrite."""
        with self._lock:
            if not self._is_live:
                yield
                return
            self._bar.stop()
            try:
                yield
            finally:
                self._bar.start()

    @contextmanager
    def shown(self) -> Iterator[LiveLine]:
        """Show the line inside the block."""
        threads: list[threading.Thread] = []
        if self._opening is not None:
            threads.append(threading.Thread(target=self._open_later, daemon=True))
        if not self._is_live and not self._console.quiet:
            threads.append(threading.Thread(target=self._print_lines, daemon=True))
        with self._bar if self._is_live else nullcontext():
            for thread in threads:
                thread.start()
            try:
                yield self
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()

    def _open_later(self) -> None:
        if not self._over.wait(OPENING_SECONDS):
            self.open()

    def _print_lines(self) -> None:
        """Print a line every few seconds until the work is over."""
        began = time.monotonic()
        pause = LINE_SECONDS
        while not self._over.wait(pause):
            with self._lock:
                try:
                    self._console.print(self.line(), soft_wrap=True)
                except OSError:
                    # Nobody reads the progress; the work goes on.
                    return
            longer = LINE_SHARE * (time.monotonic() - began)
            pause = min(LONGEST_PAUSE, max(LINE_SECONDS, longer))


class _TimeColumn(ProgressColumn):
    """The elapsed time and the end of the whole work."""

    def __init__(self, line: LiveLine) -> None:
        super().__init__()
        self._line = line

    def render(self, task: Task) -> Text:
        """Show the times, which rich asks for at each refresh."""
        return Text(self._line.times(), no_wrap=True)


@contextmanager
def watch(
    console: Console, limit: float | None = None, opening: Opening | None = None
) -> Iterator[LiveLine]:
    """Show the progress of a command inside the block, as :class:`LiveLine` describes it."""
    with LiveLine(console, limit, opening).shown() as line:
        yield line
