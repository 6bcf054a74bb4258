"""Certificates from the command line: written by verify and run, checked by check.

Class 0 of the network wins only where x0 > |x1|: from (1, 0) the distance to that border is 1/2.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.regions.pictures import png_bytes
from tests.brute_force import TinyNetwork
from tests.cli.diamond import DIAMOND, Run, read_json

ASKED = ("net.npz", "--input", "x.npy", "--label", "0")

WRITE = ("--certificate", "proof")

CHECK = ("check", "proof", "--model", "net.npz")


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the network, which states no data box, and the point (1, 0)."""
    monkeypatch.chdir(tmp_path)
    DIAMOND.build().save(Path("net.npz"))
    np.save("x.npy", np.array([1.0, 0.0]))


@pytest.fixture
def proved(run: Run) -> None:
    """Write a certificate about the point (1, 0)."""
    assert run("verify", *ASKED, "--radius", "0.25", *WRITE).code == 0


@pytest.mark.parametrize("arithmetic", ["real", "float32"])
@pytest.mark.parametrize(("radius", "word"), [("0.4", "for every input"), ("0.75", "some input")])
def test_a_verdict_comes_with_a_certificate(
    run: Run, radius: str, word: str, arithmetic: str
) -> None:
    answer = run("verify", *ASKED, "--radius", radius, "--arithmetic", arithmetic, *WRITE)
    assert answer.code == (word == "some input")
    assert "certificate: proof" in answer.out
    # Others may read it, as any file that is written here.
    assert Path("proof").stat().st_mode == Path("x.npy").stat().st_mode
    answer = run(*CHECK)
    assert answer.code == 0 and answer.out.startswith("accepted: ")
    assert word in answer.out and arithmetic in answer.out


def test_another_network_is_rejected_with_code_1(run: Run) -> None:
    changed = TinyNetwork(DIAMOND.weights, (np.zeros(2), np.array([1.0, 0.0, 1.5])), "plus")
    changed.build().save(Path("other.npz"))
    run("verify", *ASKED, "--radius", "0.4", *WRITE)
    answer = run("check", "proof", "--model", "other.npz")
    assert (answer.code, answer.err) == (1, "")
    assert answer.out == "rejected: it is about another network\n"
    answer = run("check", "proof", "--model", "other.npz", "--json", "-")
    assert answer.code == 1
    assert json.loads(answer.out)["accepted"] is False


@pytest.mark.parametrize("path", ["nothing", "x.npy"])
def test_what_is_no_certificate_is_code_2(run: Run, path: str) -> None:
    answer = run("check", path, "--model", "net.npz")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"bnncert: {path}: ")
    assert answer.err.count("\n") == 1


def test_a_folder_that_does_not_exist_is_refused_at_once(run: Run) -> None:
    answer = run("verify", *ASKED, "--radius", "0.4", "--certificate", "missing/proof")
    assert answer.code == 2
    assert "missing" in answer.err


def test_a_time_limit_leaves_no_half_certificate(run: Run, tmp_path: Path) -> None:
    answer = run("verify", *ASKED, "--radius", "0.4", *WRITE, "--timeout", "1e-6")
    assert answer.code == 0
    assert "certificate" in answer.out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.npz", "x.npy"]


def test_run_writes_one_for_every_verdict(run: Run) -> None:
    np.savez("data.npz", points=np.array([[1.0, 0.0], [2.0, 0.0]]), labels=np.zeros(2, dtype=int))
    common = ("--data", "data.npz", "--out", "out.sqlite", "--radius", "0.25,0.75")
    answer = run("run", "net.npz", *common, "--certificate", "proofs")
    assert (answer.code, answer.err) == (0, "")
    checked = [run("check", proof, "--model", "net.npz") for proof in Path("proofs").iterdir()]
    assert [answer.code for answer in checked] == [0] * 4
    # Only the nearer point is not robust at the larger radius.
    assert [answer.out.split()[1] for answer in checked].count("some") == 1


def test_another_sign_of_zero_needs_the_flag(run: Run) -> None:
    common = ("--radius", "0.4", "--sign-zero", "minus")
    run("verify", *ASKED, *common, *WRITE)
    np.savez("data.npz", points=np.array([[1.0, 0.0]]), labels=np.zeros(1, dtype=np.int64))
    more = ("--out", "out.sqlite", *common, "--certificate", "proofs")
    run("run", "net.npz", "--data", "data.npz", *more)
    for path in ("proof", *Path("proofs").iterdir()):
        answer = run("check", path, "--model", "net.npz")
        assert (answer.code, answer.err) == (1, "")
        assert answer.out == (
            "rejected: it takes sign(0) = -1, and the network has sign(0) = +1 "
            "(use --sign-zero minus)\n"
        )
        answer = run("check", path, "--model", "net.npz", "--sign-zero", "minus")
        assert answer.code == 0 and "sign(0) = -1" in answer.out
        assert run("check", path, "--model", "net.npz", "--sign-zero", "either").code == 1


def test_the_assumptions_are_in_the_json(run: Run) -> None:
    run("verify", *ASKED, "--radius", "0.25", "--clip", "-1", "2", *WRITE)
    answer = run(*CHECK, "--json", "-", "--timeout", "60")
    tree = json.loads(answer.out)
    assert answer.code == 0
    assert tree["assumptions"] == {
        "sign_zero": "plus",
        "arithmetic": "real",
        "ties": "violation",
        "data_box": "inside the data box [-1, 2], while the network states none",
        "inputs": "shown",
    }
    assert tree["property"]["rivals"] == [1, 2]
    assert tree["targets"] == 2


@pytest.mark.usefixtures("proved")
def test_a_check_has_a_time_limit(run: Run) -> None:
    answer = run(*CHECK, "--timeout", "1e-9")
    assert answer.code == 1
    assert answer.out == "rejected: the check did not end within 1e-09 s\n"
    answer = run(*CHECK, "--timeout", "0")
    assert answer.code == 2 and "--timeout" in answer.err


@pytest.mark.usefixtures("proved")
def test_the_input_is_the_centre(run: Run) -> None:
    answer = run(*CHECK, "--input", "x.npy")
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "the centre is x.npy"
    np.savez("rows.npz", rows=np.array([[0.5, 0.5], [1.0, 0.0]]))
    answer = run(*CHECK, "--input", "rows.npz:rows", "--index", "1")
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "the centre is rows.npz:rows [1]"


@pytest.mark.usefixtures("proved")
def test_another_input_is_rejected_with_the_first_difference(run: Run) -> None:
    np.save("y.npy", np.array([1.0, 0.125]))
    answer = run(*CHECK, "--input", "y.npy", "--json", "a.json")
    reason = (
        "it is about another input than y.npy: 1 of 2 values differ, the first at "
        "input 1: 0.0 in the certificate, 0.125 in y.npy"
    )
    assert (answer.code, answer.out) == (1, f"rejected: {reason}\n")
    tree = read_json(Path("a.json"))
    assert tree["accepted"] is False and tree["reason"] == reason
    assert tree["input"] == "y.npy"


def test_centres_of_grids_are_float32_numbers(run: Run) -> None:
    # 0.1 is not a float32 number, so that the centre of an L0 ball is a number beside it.
    np.save("x.npy", np.array([1.0, 0.1]))
    ball = ("--norm", "l0", "--radius", "0", "--clip", "0", "1")
    assert run("verify", *ASKED, *ball, *WRITE).code == 0
    answer = run(*CHECK, "--input", "x.npy")
    assert answer.code == 0
    assert answer.out.splitlines()[-1] == "the centre is x.npy, rounded to float32 numbers"


@pytest.mark.parametrize("option", [("--input", "x.npy"), ("--picture",)])
def test_a_box_has_no_centre(run: Run, option: tuple[str, ...]) -> None:
    box = bnncert.Box([0.75, -0.25], [1, 0.25])
    assert bnncert.verify(DIAMOND.build(), box, 0, timeout=60, certificate=Path("proof"))
    answer = run(*CHECK, *option)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        f"bnncert: proof: it is about a box and has no centre; leave out {option[0]}\n"
    )


@pytest.mark.usefixtures("proved")
def test_an_index_needs_an_input(run: Run) -> None:
    answer = run(*CHECK, "--index", "0")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "bnncert: --index is given without --input\n"


@pytest.mark.usefixtures("proved")
def test_the_centre_is_drawn(run: Run) -> None:
    answer = run(*CHECK, "--picture")
    assert (answer.code, answer.out) == (2, "")
    assert "--picture: inputs of shape (2,) are not an image" in answer.err
    network = bnncert.Network.from_arrays(
        [[[1, 1, 1, 1]], [[1], [-1]]], [[0], [0, 0]], input_lo=0, input_hi=1
    )
    network.save(Path("image.npz"))
    ball = bnncert.Ball("linf", [0, 1, 1, 0], 0.125, 0, 1)
    bnncert.verify(network, ball, 0, timeout=60, certificate=Path("drawn"))
    answer = run("check", "drawn", "--model", "image.npz", "--picture")
    assert answer.code == 0
    # Two characters for a pixel, from dark to light.
    assert [line.ljust(4) for line in answer.out.splitlines()[-2:]] == ["  @@", "@@  "]
    Path("image.png").write_bytes(png_bytes(np.array([[0, 255], [255, 0]], dtype=np.uint8)))
    asked = ("check", "drawn", "--model", "image.npz", "--input", "image.png")
    assert run(*asked).out.splitlines()[-1] == "the centre is image.png"
    # The same pixels are another input if they enter on another scale.
    answer = run(*asked, "--scale", "0", "2")
    assert answer.code == 1
    assert "the first at input 1: 1.0 in the certificate, 2.0 in image.png" in answer.out
