"""Certificates from the command line: written by verify and run, checked by check.

The network has h = (sign(x0 + x1), sign(x0 - x1)) and class 0 wins only where h = (+, +), that is
where x0 > |x1|: from (1, 0) the distance to that border is 1/2 in L-inf.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bnncert
from bnncert.cli.program import main
from bnncert.deadline import Deadline
from bnncert.engine.methods import Context
from bnncert.engine.replay import Replayer
from bnncert.engine.verdict import Result, TargetResult
from bnncert.problem import robustness
from bnncert.proofs.claims import write_verdict
from bnncert.proofs.proof_builder import ProofBuilder
from bnncert.regions.pictures import png_bytes
from tests.brute_force import TinyNetwork

Run = Callable[..., tuple[int, str, str]]

DIAMOND = TinyNetwork(
    (np.array([[1, 1], [1, -1]]), np.array([[1, 1], [-1, 1], [1, -1]])),
    (np.zeros(2), np.array([1.0, 0.0, 0.5])),
    "plus",
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bnncert", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        shown = capsys.readouterr()
        return int(caught.value.code or 0), shown.out, shown.err

    return call


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    model, point = tmp_path / "net.npz", tmp_path / "x.npy"
    DIAMOND.build().save(model)
    np.save(point, np.array([1.0, 0.0]))
    return model, point


@pytest.mark.parametrize("arithmetic", ["real", "float32"])
@pytest.mark.parametrize(("radius", "word"), [(0.4, "for every input"), (0.75, "some input")])
def test_a_verdict_comes_with_a_certificate(
    run: Run, files: tuple[Path, Path], tmp_path: Path, radius: float, word: str, arithmetic: str
) -> None:
    model, point = files
    proof = tmp_path / "proof.bnncert"
    common = ("--input", point, "--label", 0, "--radius", radius, "--arithmetic", arithmetic)
    code, out, _ = run("verify", model, *common, "--certificate", proof)
    assert code == (word == "some input")
    assert f"certificate: {proof}" in out
    # Others may read it, as any file that is written here.
    assert proof.stat().st_mode == point.stat().st_mode
    code, out, _ = run("check", proof, "--model", model)
    assert code == 0
    assert out.startswith("accepted: ")
    assert word in out
    assert arithmetic in out


def test_another_network_is_rejected_with_code_1(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    model, point = files
    proof, other = tmp_path / "proof.bnncert", tmp_path / "other.npz"
    changed = TinyNetwork(DIAMOND.weights, (np.zeros(2), np.array([1.0, 0.0, 1.5])), "plus")
    changed.build().save(other)
    run("verify", model, "--input", point, "--label", 0, "--radius", 0.4, "--certificate", proof)
    code, out, err = run("check", proof, "--model", other)
    assert (code, err) == (1, "")
    assert out == "rejected: it is about another network\n"
    code, out, _ = run("check", proof, "--model", other, "--json", "-")
    assert code == 1
    assert json.loads(out)["accepted"] is False


def test_what_is_no_certificate_is_code_2(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    model, point = files
    missing = tmp_path / "nothing"
    for path in (missing, point):
        code, out, err = run("check", path, "--model", model)
        assert (code, out) == (2, "")
        assert err.startswith(f"bnncert: {path}: ")
        assert err.count("\n") == 1


def test_a_folder_that_does_not_exist_is_refused_at_once(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    model, point = files
    proof = tmp_path / "no" / "proof"
    common = ("--input", point, "--label", 0, "--radius", 0.4, "--certificate", proof)
    code, _, err = run("verify", model, *common)
    assert code == 2
    assert str(tmp_path / "no") in err


def test_a_time_limit_leaves_no_half_certificate(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    model, point = files
    proof = tmp_path / "proof.bnncert"
    common = ("--input", point, "--label", 0, "--radius", 0.4, "--certificate", proof)
    code, out, _ = run("verify", model, *common, "--timeout", 1e-6)
    assert code == 0
    assert "certificate" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.npz", "x.npy"]


def test_run_writes_one_for_every_verdict(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    model, _ = files
    data, folder = tmp_path / "data.npz", tmp_path / "proofs"
    points = np.array([[1.0, 0.0], [2.0, 0.0]])
    np.savez(data, points=points, labels=np.zeros(2, dtype=np.int64))
    out_file = tmp_path / "out.sqlite"
    common = ("--data", data, "--out", out_file, "--radius", "0.25,0.75")
    code, _, err = run("run", model, *common, "--certificate", folder)
    assert (code, err) == (0, "")
    proofs = sorted(folder.iterdir())
    assert len(proofs) == 4
    words = []
    for proof in proofs:
        code, out, _ = run("check", proof, "--model", model)
        assert code == 0
        words.append(out.split()[1])
    # Only the nearer point is not robust at the larger radius.
    assert words.count("some") == 1


@pytest.mark.parametrize(
    ("stage", "solver", "trusted"),
    [("milp", "highs", "highs"), ("minp", "gurobi", "gurobi"), ("sdp", None, "bnncert")],
)
def test_a_verdict_without_a_proof_names_whom_it_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, solver: str | None, trusted: str
) -> None:
    network = DIAMOND.build()
    problem = robustness(network, bnncert.Ball("linf", [1.0, 0.0], 0.4), 0)
    context = Context(bnncert.Options(), Deadline(None), Replayer(problem))
    answers = tuple(
        TargetResult(t.name, "robust", stage=stage, trusted=solver) for t in problem.targets
    )
    verdict = Result("robust", answers, 0.0, stage)
    monkeypatch.setattr(ProofBuilder, "prove", lambda *arguments: None)
    proof = tmp_path / "proof.bnncert"
    found = write_verdict(proof, problem, network, verdict, context)
    assert (found.status, found.certificate, found.trusted) == ("robust", None, trusted)
    assert list(tmp_path.iterdir()) == []


def test_another_sign_of_zero_needs_the_flag(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    model, point = files
    proof, folder = tmp_path / "proof.bnncert", tmp_path / "proofs"
    common = ("--label", 0, "--radius", 0.4, "--sign-zero", "minus")
    run("verify", model, "--input", point, *common, "--certificate", proof)
    data = tmp_path / "data.npz"
    np.savez(data, points=np.array([[1.0, 0.0]]), labels=np.zeros(1, dtype=np.int64))
    out_file = tmp_path / "out.sqlite"
    more = ("--radius", 0.4, "--sign-zero", "minus", "--certificate", folder)
    run("run", model, "--data", data, "--out", out_file, *more)
    for path in (proof, *folder.iterdir()):
        code, out, err = run("check", path, "--model", model)
        assert (code, err) == (1, "")
        assert out == (
            "rejected: it takes sign(0) = -1, and the network has sign(0) = +1 "
            "(use --sign-zero minus)\n"
        )
        code, out, _ = run("check", path, "--model", model, "--sign-zero", "minus")
        assert code == 0 and "sign(0) = -1" in out
        code, out, _ = run("check", path, "--model", model, "--sign-zero", "either")
        assert code == 1


def test_the_assumptions_are_in_the_json(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    model, point = files
    proof = tmp_path / "proof.bnncert"
    common = ("--input", point, "--label", 0, "--radius", 0.25, "--clip", -1, 2)
    run("verify", model, *common, "--certificate", proof)
    code, out, _ = run("check", proof, "--model", model, "--json", "-", "--timeout", 60)
    tree = json.loads(out)
    assert code == 0
    assert tree["assumptions"] == {
        "sign_zero": "plus",
        "arithmetic": "real",
        "ties": "violation",
        "data_box": "inside the data box [-1, 2], while the network states none",
        "inputs": "shown",
    }
    assert tree["property"]["rivals"] == [1, 2]
    assert tree["targets"] == 2


def test_a_check_has_a_time_limit(run: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    model, point = files
    proof = tmp_path / "proof.bnncert"
    common = ("--input", point, "--label", 0, "--radius", 0.25)
    run("verify", model, *common, "--certificate", proof)
    code, out, _ = run("check", proof, "--model", model, "--timeout", 1e-9)
    assert (code, out) == (1, "rejected: the check did not end within 1e-09 s\n")
    code, _, err = run("check", proof, "--model", model, "--timeout", 0)
    assert code == 2 and "--timeout" in err


@pytest.fixture
def proved(run: Run, files: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Return the model and a certificate about the point (1, 0)."""
    model, point = files
    asked = ("--input", point, "--label", 0, "--radius", 0.25, "--certificate", tmp_path / "p")
    assert run("verify", model, *asked)[0] == 0
    return model, tmp_path / "p"


def test_the_input_is_the_centre(
    run: Run, files: tuple[Path, Path], proved: tuple[Path, Path], tmp_path: Path
) -> None:
    model, proof = proved
    point = files[1]
    code, out, _ = run("check", proof, "--model", model, "--input", point)
    assert code == 0
    assert out.splitlines()[-1] == f"the centre is {point}"
    np.savez(tmp_path / "rows.npz", rows=np.array([[0.5, 0.5], [1.0, 0.0]]))
    rows = f"{tmp_path / 'rows.npz'}:rows"
    code, out, _ = run("check", proof, "--model", model, "--input", rows, "--index", 1)
    assert (code, out.splitlines()[-1]) == (0, f"the centre is {rows} [1]")


def test_another_input_is_rejected_with_the_first_difference(
    run: Run, proved: tuple[Path, Path], tmp_path: Path
) -> None:
    model, proof = proved
    np.save(tmp_path / "y.npy", np.array([1.0, 0.125]))
    asked = ("check", proof, "--model", model, "--input", tmp_path / "y.npy")
    code, out, _ = run(*asked, "--json", tmp_path / "a.json")
    reason = (
        f"it is about another input than {tmp_path / 'y.npy'}: 1 of 2 values differ, the first at "
        f"input 1: 0.0 in the certificate, 0.125 in {tmp_path / 'y.npy'}"
    )
    assert (code, out) == (1, f"rejected: {reason}\n")
    tree = json.loads((tmp_path / "a.json").read_text())
    assert tree["accepted"] is False and tree["reason"] == reason
    assert tree["input"] == str(tmp_path / "y.npy")


def test_centres_of_grids_are_float32_numbers(run: Run, tmp_path: Path) -> None:
    model, point = tmp_path / "net.npz", tmp_path / "x.npy"
    DIAMOND.build().save(model)
    # 0.1 is not a float32 number, so that the centre of an L0 ball is a number beside it.
    np.save(point, np.array([1.0, 0.1]))
    asked = ("--input", point, "--label", 0, "--norm", "l0", "--radius", 0, "--clip", 0, 1)
    assert run("verify", model, *asked, "--certificate", tmp_path / "p")[0] == 0
    code, out, _ = run("check", tmp_path / "p", "--model", model, "--input", point)
    assert code == 0
    assert out.splitlines()[-1] == f"the centre is {point}, rounded to float32 numbers"


def test_a_box_has_no_centre(run: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    model, point = files
    box = bnncert.Box([0.75, -0.25], [1, 0.25])
    assert bnncert.verify(DIAMOND.build(), box, 0, timeout=60, certificate=tmp_path / "p")
    for option in (("--input", point), ("--picture",)):
        code, out, err = run("check", tmp_path / "p", "--model", model, *option)
        assert (code, out) == (2, "")
        assert err == (
            f"bnncert: {tmp_path / 'p'}: it is about a box and has no centre; "
            f"leave out {option[0]}\n"
        )


def test_an_index_needs_an_input(run: Run, proved: tuple[Path, Path]) -> None:
    model, proof = proved
    code, out, err = run("check", proof, "--model", model, "--index", 0)
    assert (code, out, err) == (2, "", "bnncert: --index is given without --input\n")


def test_the_centre_is_drawn(run: Run, proved: tuple[Path, Path], tmp_path: Path) -> None:
    model, proof = proved
    code, out, err = run("check", proof, "--model", model, "--picture")
    assert (code, out) == (2, "")
    assert "--picture: inputs of shape (2,) are not an image" in err
    network = bnncert.Network.from_arrays(
        [[[1, 1, 1, 1]], [[1], [-1]]], [[0], [0, 0]], input_lo=0, input_hi=1
    )
    network.save(tmp_path / "image.npz")
    ball = bnncert.Ball("linf", [0, 1, 1, 0], 0.125, 0, 1)
    bnncert.verify(network, ball, 0, timeout=60, certificate=tmp_path / "q")
    code, out, _ = run("check", tmp_path / "q", "--model", tmp_path / "image.npz", "--picture")
    assert code == 0
    # Two characters for a pixel, from dark to light.
    assert [line.ljust(4) for line in out.splitlines()[-2:]] == ["  @@", "@@  "]
    image = tmp_path / "image.png"
    image.write_bytes(png_bytes(np.array([[0, 255], [255, 0]], dtype=np.uint8)))
    asked = ("check", tmp_path / "q", "--model", tmp_path / "image.npz", "--input", image)
    assert run(*asked)[1].splitlines()[-1] == f"the centre is {image}"
    # The same pixels are another input if they enter on another scale.
    code, out, _ = run(*asked, "--scale", 0, 2)
    assert code == 1 and f"the first at input 1: 1.0 in the certificate, 2.0 in {image}" in out
