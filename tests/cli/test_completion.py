"""Completion in the shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bnncert.cli.completion import METHODS, SHELLS
from bnncert.engine.methods import REGISTRY
from tests.cli.diamond import Run, environment


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ver", "verify"),
        ("verify --gri", "--grid"),
        ("verify --method prop", "propagation"),
        ("verify --norm l", "linf l2 l1 l0"),
        ("verify dem", "demo:sparse demo:dense demo:certified"),
        ("bound demo:sparse demo:1 --so", "--solver"),
        ("experiment paper-gap-", "paper-gap-reduced"),
    ],
)
def test_completions(words: str, found: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_BNNCERT_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"bnncert {words}")
    answer = run()
    assert answer.code == 0
    assert [line.partition("\t")[0] for line in answer.out.splitlines()] == found.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("verify", "dem"), ["demo:sparse", "demo:dense", "demo:certified"]),
        (("verify", "demo", ":"), ["sparse", "dense", "certified"]),
        (("verify", "demo", ":", "s"), ["sparse"]),
        (("verify", "demo", ":", "sparse", "demo", ":", "7"), ["7"]),
        (("verify", "demo", ":", "sparse", "--meth"), ["--method"]),
        (("convert", "demo", ":", "sparse", "net"), []),
    ],
    ids=lambda value: " ".join(value),
)
def test_bash_ends_words_at_colons(
    words: tuple[str, ...], found: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_BNNCERT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(("bnncert", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    answer = run()
    assert (answer.code, answer.out.split()) == (0, found)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_script_in_bash(tmp_path: Path, run: Run) -> None:
    (tmp_path / "script").write_text(run("--show-completion", "bash").out)
    command = tmp_path / "bnncert"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bnncert "$@"\n')
    command.chmod(0o755)
    asked = (
        f"source {tmp_path}/script; COMP_WORDS=(bnncert che); COMP_CWORD=1; "
        f'_bnncert_completion {command}; echo "${{COMPREPLY[@]}}"; complete -p bnncert'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=True,
    )
    assert done.stdout == "check\ncomplete -o default -F _bnncert_completion bnncert\n"


def test_files_have_precedence_over_names(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("demonstration.npz").write_bytes(b"")
    monkeypatch.setenv("_BNNCERT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "bnncert\ninfo\ndemo")
    monkeypatch.setenv("COMP_CWORD", "2")
    # Without an answer the shell completes the names of files.
    assert run().out.split() == []


def test_the_names_of_the_methods() -> None:
    assert sorted(METHODS) == sorted(method.name for method in REGISTRY.all())


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts(shell: str, run: Run) -> None:
    answer = run("--show-completion", shell)
    assert (answer.code, answer.err) == (0, "")
    assert "_BNNCERT_COMPLETE" in answer.out


def test_installation(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    answer = run("--install-completion", "bash")
    assert (answer.code, answer.err) == (0, "")
    file = tmp_path / ".bash_completions" / "bnncert.sh"
    assert answer.out.startswith(f"completion for bash is installed in {file}")
    assert str(file) in (tmp_path / ".bashrc").read_text()
    assert "_bnncert_completion" in file.read_text()


def test_the_shell_is_detected_or_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import shellingham

    monkeypatch.setattr(shellingham, "detect_shell", lambda: ("zsh", "/bin/zsh"))
    assert run("--show-completion").out.startswith("#compdef bnncert")
    monkeypatch.setattr(shellingham, "detect_shell", lambda: ("cmd", "cmd.exe"))
    for words in (("--show-completion",), ("--install-completion", "tcsh")):
        answer = run(*words)
        assert answer.code == 2 and answer.err.count("\n") == 1
        assert "one of bash, zsh, fish" in answer.err
