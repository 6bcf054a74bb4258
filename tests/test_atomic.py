"""Files that are written whole or not at all, on a full disk too.

The disk is full by a limit on the size of files: a write beyond it fails as one on a full disk
does (Python ignores the signal that comes with it).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import gettempdir

import pytest

import bnncert
from bnncert.errors import InputError
from bnncert.model.formats.atomic import replacing, write_atomically
from bnncert.questions.prover import UnwrittenError
from tests.cli.diamond import diamond_folder
from tests.in_process import Outcome, command_line
from tests.kernel.every_claim import IMAGE, KINDS, NET

resource = pytest.importorskip("resource", reason="needs limits of POSIX")

Run = Callable[..., Outcome]


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """Let no file grow beyond a number of bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_a_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_atomically(target, "é1\n")
    assert target.read_bytes() == "é1\n".encode()
    usual = tmp_path / "usual"
    usual.write_bytes(b"")
    assert target.stat().st_mode == usual.stat().st_mode
    target.chmod(0o640)
    write_atomically(target, b"2")
    assert target.read_bytes() == b"2"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(content(tmp_path)) == ["a.txt", "usual"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError("odd")])
def test_whatever_is_raised_leaves_the_old_file_and_no_other(
    tmp_path: Path, error: BaseException | type[BaseException]
) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    wanted = InputError if isinstance(error, OSError) else error

    def write() -> None:
        with replacing(target) as file:
            file.write(b"new" * 100_000)
            raise error

    with pytest.raises(wanted):  # type: ignore[arg-type]
        write()
    assert content(tmp_path) == {"a.txt": b"old"}


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path: Path) -> None:
    target, link = tmp_path / "a.txt", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    write_atomically(os.devnull, b"new")
    assert not Path(os.devnull).is_file()


def test_names_of_any_length_and_temporary_names_that_nobody_can_guess(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 251 + ".npz")
    names = []
    for _ in range(2):
        with replacing(target) as file:
            names.append(Path(file.name))
    assert names[0].parent == names[1].parent == tmp_path
    assert names[0] != names[1]
    assert {name.suffix for name in names} == {".npz"}


def test_the_message_names_the_target(tmp_path: Path) -> None:
    for target in (tmp_path / "no" / "a.txt", tmp_path, tmp_path / ("n" * 300)):
        with pytest.raises(InputError, match=r"cannot be written \([A-Z]") as caught:
            write_atomically(target, b"")
        assert str(caught.value).startswith(f"{target}: ")
    if os.access("/dev/full", os.W_OK):
        with pytest.raises(InputError, match="/dev/full: cannot be written"):
            write_atomically("/dev/full", b"1")


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a user who is refused something")
def test_a_file_without_write_permission_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    target.chmod(0o444)
    with pytest.raises(InputError, match="Permission denied"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"


# --- the command line on a full disk ----------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("COLUMNS", "200")
    # Not capfd, whose files the limit would hit as well.
    return command_line(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return diamond_folder(tmp_path, monkeypatch)


ABOUT_X = ("net.npz", "--input", "x.npy", "--label", "0")


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize(
    ("arguments", "verdict", "target"),
    [
        (("verify", *ABOUT_X, "--radius", "0.4", "--certificate"), "robust in ", "a.bnncert"),
        (("verify", *ABOUT_X, "--radius", "0.75", "--certificate"), "not robust in ", "a.bnncert"),
        (("verify", *ABOUT_X, "--radius", "0.75", "--witness"), "not robust in ", "a.txt"),
        (("verify", *ABOUT_X, "--radius", "0.75", "--save-counterexample"), "not robust", "a.npy"),
        (("verify", *ABOUT_X, "--radius", "0.4", "--json"), "robust in ", "a.json"),
        (("bound", *ABOUT_X, "--radius", "0.4", "--json"), "robust in ", "a.json"),
        (("radius", *ABOUT_X, "--json"), "certified radius", "a.json"),
        (("convert", "net.npz"), "", "a.npz"),
        (("convert", "net.npz"), "", "a.json"),
        (("convert", "net.npz"), "", "a.onnx"),
    ],
    ids=lambda value: value[0] + value[-1] if isinstance(value, tuple) else None,
)
def test_a_full_disk_takes_neither_the_verdict_nor_an_older_file(
    run: Run, folder: Path, arguments: tuple[str, ...], verdict: str, target: str, old: bytes | None
) -> None:
    if old is not None:
        (folder / target).write_bytes(old)
    before = content(folder)
    with files_end_at(10):
        ended = run(*arguments, target)
    assert ended.code == 2
    assert verdict in ended.out
    assert ended.err == f"bnncert: {target}: cannot be written (File too large)\n"
    assert content(folder) == before


#: Answers that are known by hand, see tests/cli/diamond.py.
CERTIFIED = {
    ("explain", "net.npz", "--input", "x.npy"): "2 of 2 inputs suffice for class 0, and each",
    ("faults", *ABOUT_X, "--radius", "0"): "weights, layer 1: 1 fault for class 1",
    ("count", *ABOUT_X, "--radius", "1", "--grid", "1"): "exactly 2 have another class",
    ("monotone", "net.npz", "--feature", "0", "--label", "0"): "holds: class 0 is monotonically",
    ("fair", "net.npz", "--protect", "1"): "fails: the class depends on input 1",
    ("compare", "net.npz", "net.npz"): "identical: the normal forms are equal",
    ("radius", *ABOUT_X, "--exact", "--grid", "0.25"): "smallest perturbation: 3 steps",
}


@pytest.mark.parametrize("arguments", CERTIFIED, ids=lambda arguments: arguments[0])
def test_a_full_disk_takes_the_certificate_and_not_the_answer(
    run: Run, folder: Path, arguments: tuple[str, ...]
) -> None:
    before = content(folder)
    with files_end_at(10):
        ended = run(*arguments, "--certificate", "a.bnncert")
    assert ended.code == 2
    assert CERTIFIED[arguments] in ended.out
    assert "no certificate" not in ended.out
    named = "bnncert: a.bnncert: cannot be written (File too large"
    assert ended.err in (f"{named})\n", f"{named} in {gettempdir()})\n")
    assert content(folder) == before


def test_the_verdict_is_there_before_the_proof_is_written(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def note(path: Path, *_: object, **__: object) -> None:
        seen.append(capsys.readouterr().out)
        path.touch()

    monkeypatch.setattr("bnncert.proofs.claims.write_proof", note)
    run("verify", *ABOUT_X, "--radius", "0.4", "--certificate", "a.bnncert")
    assert len(seen) == 1
    assert "robust in " in seen[0]


@pytest.mark.parametrize("kind", [*KINDS, "smallest"])
def test_a_full_disk_names_the_file_that_was_asked_for(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates of many kinds consist of parts, whose files the user does not know."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "asked.bnncert"
    few = bnncert.L0Ball(IMAGE, 1, -1, 1)
    asked = {name: partial(written.write, path, IMAGE) for name, written in KINDS.items()}
    asked["smallest"] = partial(bnncert.smallest, NET, few, 0, timeout=60, certificate=path)
    with pytest.raises(UnwrittenError) as caught:
        asked[kind]()
    assert caught.value.answer.certificate is None
    reason = "No space left on device"
    named = f"{path}: cannot be written ({reason})"
    assert str(caught.value) in (named, named.replace(reason, f"{reason} in {gettempdir()}"))
    assert not list(tmp_path.iterdir())
