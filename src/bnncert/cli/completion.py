"""Completion in the shell: what the options complete to, and the scripts of the shells.

typer has the scripts and the protocol.  Its words end at white space only, but bash also ends a
word at a colon, so the names of bundled data need a class of their own there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bnncert.errors import InputError

#: The shells, and the options that name one of them.
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
OPTIONS = ("--install-completion", "--show-completion")

#: The variable by which the script of a shell asks for completions.
VARIABLE = "_BNNCERT_COMPLETE"

#: The names of all methods: importing the methods takes too long for a completion.
METHODS = (
    *("attack", "interval", "lp", "sdp", "bab", "milp", "propagation", "elimination", "auto"),
    "learning",
    *("minp", "sample", "sdp-standard", "sdp-tight-plain", "sdp-tight", "sdp-tight-pairwise"),
    "sdp-order2",
)


def among(names: Sequence[str], *, files: bool = False) -> Callable[[str], list[str]]:
    """Return a function that completes the start of a name.

    With `files` the shell completes the names of files if nothing has been written, or if there
    are files that begin with it.
    """

    def complete(incomplete: str) -> list[str]:
        if files and (not incomplete or any(Path().glob(f"{_escaped(incomplete)}*"))):
            return []
        return [name for name in names if name.startswith(incomplete)]

    return complete


def _escaped(text: str) -> str:
    """Return a text without the meaning that its characters have in a pattern, and relative."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text.lstrip("/")) or "*"


def with_shell(arguments: list[str]) -> list[str]:
    """Return the arguments with the current shell after an option that does not name one."""
    if arguments and arguments[-1] in OPTIONS:
        return [*arguments, _current_shell(arguments[-1])]
    return arguments


def _current_shell(option: str) -> str:
    import shellingham

    try:
        name = str(shellingham.detect_shell()[0])
    except (shellingham.ShellDetectionFailure, OSError):
        name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise InputError(f"{option}: the shell is not known; give one of {', '.join(SHELLS)}")
    return name


def install_script(shell: str) -> str:
    """Install the completion for a shell, and return a sentence about it."""
    from typer import completion

    _check(shell, OPTIONS[0])
    _, path = completion.install(shell=shell, prog_name="bnncert", complete_var=VARIABLE)  # type: ignore[attr-defined]
    return f"completion for {shell} is installed in {path}; it works in new terminals"


def script(shell: str) -> str:
    """Make the script that a shell sources to complete the command line."""
    from typer import completion

    _check(shell, OPTIONS[1])
    make: Callable[..., str] = completion.get_completion_script  # type: ignore[attr-defined]
    return make(prog_name="bnncert", complete_var=VARIABLE, shell=shell)


def _check(shell: str, option: str) -> None:
    if shell not in SHELLS:
        raise InputError(f"{option} is {shell}; expected one of {', '.join(SHELLS)}")


def prepare() -> None:
    """Register the shells with typer, if a shell asks for completions."""
    if VARIABLE not in os.environ:
        return
    from typer import _completion_classes as classes

    classes.completion_init()
    # typer renders descriptions by rich, which breaks long ones into lines that are completions.
    classes._sanitize_help_text = lambda text: text
    base: Any = classes.BashComplete

    class ColonBash(base):  # type: ignore[misc]
        """Completion in bash, which passes demo:0 as the three words demo, : and 0."""

        def get_completion_args(self) -> tuple[list[str], str]:
            """Split what is typed into complete words and the incomplete one."""
            words = os.environ["COMP_WORDS"].split("\n")
            place = int(os.environ["COMP_CWORD"])
            joined = _joined(words[1 : place + 1] if place < len(words) else [*words[1:], ""])
            self.kept = joined[-1].rpartition(":")[0]
            return joined[:-1], joined[-1]

        def format_completion(self, item: Any) -> str:
            """Return what replaces the written part of a word, which begins after its colon."""
            return str(item.value).removeprefix(f"{self.kept}:" if self.kept else "")

    # The module of the registry differs between versions of typer.
    registry = next(c.__module__ for c in base.__mro__ if c.__name__ == "ShellComplete")
    sys.modules[registry].add_completion_class(ColonBash, "bash")


def _joined(words: Sequence[str]) -> list[str]:
    """Join words that bash splits at a colon, such as demo:0."""
    joined: list[str] = []
    for word in words:
        if joined and (word.startswith(":") or joined[-1].endswith(":")):
            joined[-1] += word
        else:
            joined.append(word)
    return joined or [""]
