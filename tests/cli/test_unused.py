"""Options that would not be used are refused by name; those that are used are not."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bnncert.cli.grouping import OPTION_FIELDS
from bnncert.deadline import Deadline
from bnncert.engine.methods import REGISTRY, Context, Method, Options
from bnncert.engine.replay import Replayer
from bnncert.problem import robustness
from bnncert.regions import Ball
from tests.cli.diamond import DIAMOND, Run, query
from tests.cli.test_question import one_line

BALL = ("--input", "x.npy", "--radius", "0.1")


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "query.vnnlib").write_text(query("0.1"))
    return folder


# --- methods ---------------------------------------------------------------------------------

UNREAD = {
    "form of sdp": (("bound", "--method", "sdp", "--form", "soft"), "milp"),
    "form of the default bound": (("bound", "--form", "lattice"), "milp, auto and minp"),
    "samples of sdp": (("bound", "--samples", "10"), "sample"),
    "sparsity of milp": (("bound", "--method", "milp", "--sparsity", "dense"), "sdp-tight"),
    "sparsity of sdp": (("bound", "--sparsity", "dense"), "sdp-tight"),
    "coupling of lp": (("bound", "--method", "lp", "--coupling", "on"), "sdp"),
    "solver of attack": (("bound", "--method", "attack", "--solver", "highs"), "milp"),
    "samples of auto": (("bound", "--method", "auto", "--samples", "10"), "sample"),
    "memory of interval": (("verify", "--method", "interval", "--memory-limit", "1"), "bab"),
    "processes of lp": (("verify", "--method", "lp", "--processes", "2"), "bab"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_an_option_that_the_method_does_not_read_is_refused(
    run: Run, folder: Path, name: str
) -> None:
    (command, *options), owner = UNREAD[name]
    question = BALL[:2] if command == "radius" else BALL
    message = one_line(run(command, "net.npz", *question, *options))
    flag = next(o for o in reversed(options) if o.startswith("--"))
    assert f"does not use {flag}; it belongs to " in message
    assert owner in message


def test_a_campaign_refuses_what_its_method_does_not_read(run: Run, folder: Path) -> None:
    options = ("--data", "x.npy", "--radius", "0.1", "--out", "r.sqlite", "--method", "lp")
    message = one_line(run("run", "net.npz", *options, "--memory-limit", "2"))
    assert "method lp does not use --memory-limit" in message
    assert not (folder / "r.sqlite").exists()


def test_a_default_is_not_an_option_that_was_given(run: Run, folder: Path) -> None:
    assert run("verify", "net.npz", *BALL, "--method", "interval", "--seed", "3").code == 0


def test_auto_takes_the_options_of_all_its_stages(run: Run, folder: Path) -> None:
    options = ("--form", "soft", "--memory-limit", "1", "--coupling", "off")
    assert run("bound", "net.npz", *BALL, "--method", "auto", *options).code == 0


class Watched(Options):
    """Options that remember which of their fields were read."""

    seen: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in FIELDS:
            Watched.seen.add(name)
        return object.__getattribute__(self, name)


FIELDS = frozenset(field.name for field in fields(Options))


@pytest.mark.parametrize("mode", ["feasibility", "optimum"])
@pytest.mark.parametrize("method", REGISTRY.all(), ids=lambda method: method.name)
def test_a_method_declares_every_option_that_it_reads(method: type[Method], mode: Any) -> None:
    if not method.available():
        pytest.skip(f"needs {method.package}")
    network = DIAMOND.build()
    problem = robustness(network, Ball("linf", [1.0, 0.0], 0.6, -2.0, 2.0), 0)
    options = Watched(mode=mode, restarts=4, iterations=4, samples=10)
    Watched.seen.clear()
    method().run(problem, Context(options, Deadline(20.0), Replayer(problem)))
    # The default bound looks at the cliques only to refuse them.
    refused = {"sparsity"} if method.name == "sdp" else set()
    if method.name == "auto":
        # It copies its options, which reads them all.
        assert {"form", "restarts", "coupling", "memory"} <= method.reads
    else:
        assert Watched.seen - refused <= method.reads
    assert method.reads <= FIELDS


def test_every_option_of_the_commands_belongs_to_some_method() -> None:
    assert OPTION_FIELDS <= FIELDS
    for name in OPTION_FIELDS:
        assert REGISTRY.readers(name), name


# --- queries ---------------------------------------------------------------------------------

BESIDE_QUERY = (
    *(("--norm", "l2"), ("--radius", "0.1"), ("--input", "x.npy"), ("--label", "0")),
    *(("--index", "0"), ("--rivals", "1"), ("--ties", "robust")),
)


@pytest.mark.parametrize("option", BESIDE_QUERY, ids=lambda option: option[0])
def test_an_option_of_a_ball_beside_a_query_is_refused(
    run: Run, folder: Path, option: tuple[str, ...]
) -> None:
    message = one_line(run("verify", "net.npz", "query.vnnlib", *option))
    assert message.startswith(f"bnncert: {option[0]} describes a ball around a point")
    assert "query.vnnlib" in message


def test_several_options_beside_a_query_are_all_named(run: Run, folder: Path) -> None:
    message = one_line(run("verify", "net.npz", "query.vnnlib", *BALL, "--clip", "-1", "1"))
    assert "--input, --radius and --clip describe" in message


def test_a_query_takes_the_options_of_the_method(run: Run, folder: Path) -> None:
    outcome = run("verify", "net.npz", "query.vnnlib", "--seed", "4", "--sign-zero", "minus")
    assert (outcome.code, outcome.out.strip()) == (0, "unsat")


# --- experiments and training ----------------------------------------------------------------


def test_workers_beside_a_scheduler_are_refused(run: Run, folder: Path) -> None:
    message = one_line(
        run("experiment", "paper-linf", "--scheduler", "tcp://x:1", "--processes", "2")
    )
    assert "--processes is not used with --scheduler" in message


def test_a_folder_of_certificates_without_certificates_is_refused(run: Run, folder: Path) -> None:
    (folder / "small.json").write_text(
        '{"networks": [{"name": "a", "file": "net.npz"}], "data": "x.npy", "radii": 0.1,'
        ' "methods": ["interval"]}'
    )
    message = one_line(run("experiment", "small.json", "--certificate", "proofs"))
    assert "--certificate is not used" in message


def test_a_radius_of_penalties_without_penalties_is_refused(run: Run, folder: Path) -> None:
    message = one_line(run("train", "--data", "mnist", "--out", "a.npz", "--radius", "1"))
    assert "--radius belongs to --robust" in message


def test_an_option_is_not_the_value_of_another_one(run: Run, folder: Path) -> None:
    answer = run("verify", "demo:sparse", "demo:0", "--radius", "1px", "--json", "--explain")
    assert answer.code == 2
    assert "--json needs a value, and --explain is an option" in answer.err
    assert not (folder / "--explain").exists()
    assert run("verify", "demo:sparse", "demo:0", "--radius=0.1px", "--json=--x").code == 0
