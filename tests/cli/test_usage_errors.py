"""An option that does not exist names the one that was meant, or the command that has it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bnncert.cli.catalogue import ENTRIES
from bnncert.cli.grouping import SYNONYMS
from bnncert.cli.program import _imported
from tests.cli.diamond import BALL, DIAMOND, Run, assert_one_line, query

#: How commands name the network file that they read.
MODELS = frozenset({"model", "models", "first", "source"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--eps", "did you mean --radius?"),
        ("--epsilon=0.1", "No such option: --epsilon; did you mean --radius?"),
        ("--time-limit", "did you mean --timeout?"),
        ("--data", "did you mean --input?"),
        ("--sparsity", "it belongs to bnncert bound"),
        ("--epochs", "it belongs to bnncert train"),
        ("--raduis", "--radius"),
        ("--memory", "did you mean --memory-limit?"),
        ("--patch", "did you mean --norm patch?"),
        ("--vnnlib", "give the query after the model, as in bnncert verify MODEL QUERY.vnnlib"),
        ("--onnx", "give the model first"),
        ("--zzzz", "No such option: --zzzz; see bnncert verify --help"),
    ],
)
def test_an_unknown_option_names_another(folder: Path, run: Run, given: str, meant: str) -> None:
    assert_one_line(run("verify", "net.npz", "x.npy", given, "0.1"), meant)


def test_a_synonym_stands_for_an_option() -> None:
    names = [entry.name.replace("_", "-") for entry in ENTRIES]
    flags = {flag for name in names for p in _imported(name).params for flag in p.opts}
    assert {flag.split()[0] for flag in SYNONYMS} <= flags


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("convert", "net.npz", "--out", "x.onnx"), "as in bnncert convert MODEL NEW.onnx"),
        (("verify",), "Missing argument 'model'; see bnncert verify --help"),
        (("train", "--data", "x.npz"), "Missing option '--out'; see bnncert train --help"),
        (("info", "q.txt"), "q.txt: not a readable ONNX file; networks are .onnx, .npz, .json"),
    ],
)
def test_what_is_missing_or_misplaced(
    folder: Path, run: Run, words: tuple[str, ...], message: str
) -> None:
    Path("q.txt").write_text("hello")
    assert_one_line(run(*words), message)


def test_a_wrong_word_lists_the_right_ones(folder: Path, run: Run) -> None:
    answer = run("verify", "net.npz", *BALL, "--norm", "l3")
    assert_one_line(answer, "Invalid value for '--norm': 'l3' is not one of 'linf', 'l2'")


def test_a_file_that_is_neither_points_nor_a_query(folder: Path, run: Run) -> None:
    Path("q.txt").write_text(query("0.25"))
    assert_one_line(
        run("verify", "net.npz", "q.txt", "--radius", "0.1"), "q.txt", ".csv", ".vnnlib"
    )
    Path("p.csv").write_text("1,0\n")
    assert run("verify", "net.npz", "p.csv", "--radius", "0.25").code == 0
    assert run("verify", "net.npz", "p.csv", "--radius", "0.75").code == 1
    assert run("monotone", "net.npz", "--feature", "0", "--label", "0", *BALL).code == 0


def test_verify_takes_the_solvers_of_its_methods(folder: Path, run: Run) -> None:
    asked = ("verify", "net.npz", "x.npy", "--radius", "0.6", "--method")
    assert run(*asked, "milp", "--solver", "highs").code == 1
    assert_one_line(run(*asked, "interval", "--solver", "scs"), "interval does not use --solver")
    refused = run("-q", *asked, "milp", "--solver", "mosek")
    assert_one_line(refused, "milp has no solver 'mosek'; use highs or gurobi")


# --- files with the layers of weights ----------------------------------------------------------


def write_weights(path: Path) -> None:
    """Write the weights of the diamond as .safetensors, which PyTorch is not needed for."""
    header, body = {}, b""
    for k, (weights, biases) in enumerate(zip(DIAMOND.weights, DIAMOND.biases, strict=True)):
        for name, values in (("weight", weights), ("bias", biases)):
            data = np.asarray(values, dtype=np.float64)
            place = [len(body), len(body) + data.nbytes]
            shape = list(data.shape)
            header[f"fc{k}.{name}"] = {"dtype": "F64", "shape": shape, "data_offsets": place}
            body += data.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


LAYERS = {
    "input_shape": [2],
    "input_lo": -2,
    "input_hi": 2,
    "layers": [
        {"type": "linear", "weights": "fc0"},
        {"type": "sign", "zero": "plus"},
        {"type": "linear", "weights": "fc1"},
    ],
}


def test_every_command_that_reads_a_model_takes_its_layers(folder: Path, run: Run) -> None:
    write_weights(folder / "w.safetensors")
    assert_one_line(run("info", "w.safetensors"), "w.layers.json", "the file that --layers names")
    Path("chain.json").write_text(json.dumps(LAYERS))
    given = ("--layers", "chain.json")
    proof = ("--certificate", "p.bnncert")
    data = ("--data", "x.npy", "--radius", "0.25", "--out", "r.sqlite")
    calls: dict[str, tuple[str, ...]] = {
        "verify": ("w.safetensors", *BALL, *proof),
        "bound": ("w.safetensors", *BALL),
        "radius": ("w.safetensors", "x.npy"),
        "explain": ("w.safetensors", *BALL),
        "faults": ("w.safetensors", "x.npy"),
        "count": ("w.safetensors", *BALL, "--grid", "0.25"),
        "monotone": ("w.safetensors", "--feature", "0", "--label", "0", *BALL),
        "fair": ("w.safetensors", "--protect", "1=-0.5,0.5", *BALL),
        "run": ("w.safetensors", *data),
        "check": ("p.bnncert", "--model", "w.safetensors"),
        "info": ("w.safetensors",),
        "convert": ("w.safetensors", "copy.npz"),
        "compare": ("w.safetensors", "copy.npz"),
    }
    for entry in ENTRIES:
        parameters = _imported(entry.name.replace("_", "-")).params
        assert entry.name in calls or MODELS.isdisjoint(p.name for p in parameters)
    for name, words in calls.items():
        assert run(name, *words, *given).code == 0, name
    assert run("compare", "copy.npz", "w.safetensors", *given).code == 0
    # The layers are read, so that they are not overwritten.
    assert run("info", "w.safetensors", *given, "--json", "chain.json").code == 2


def test_a_whole_pickled_model_is_told_from_weights(folder: Path, run: Run) -> None:
    def write(name: str, pickled: bytes) -> None:
        with zipfile.ZipFile(name, "w") as archive:
            archive.writestr(f"{name}/data.pkl", pickled)

    write("whole.pt", b"\x80\x02c__main__\nNet\n)\x81.")
    write("sequential.pt", b"\x80\x02ctorch.nn.modules.container\nSequential\n)\x81.")
    write("state.pt", b"\x80\x02ccollections\nOrderedDict\n)R.")
    write("trainer.pt", b"\x80\x02}X\x04\x00\x00\x00argscargparse\nNamespace\n)\x81s.")
    whole = run("info", "whole.pt")
    assert_one_line(whole, "whole.pt", "whole pickled model", "__main__.Net", "model.state_dict()")
    assert_one_line(run("info", "sequential.pt"), "torch.nn.modules.container.Sequential", "ONNX")
    for name in ("state.pt", "trainer.pt"):
        assert_one_line(run("info", name), "has weights only", "--layers")
