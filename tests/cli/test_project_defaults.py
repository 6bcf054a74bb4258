"""Defaults of options in bnncert.toml and in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bnncert.cli.project_defaults import find_defaults
from tests.cli.diamond import Run, read_json

ASKED = ("verify", "net.npz", "x.npy", "--label", "0")


def write(text: str, name: str = "bnncert.toml") -> None:
    Path(name).write_text(text)


def refused(run: Run, *words: str) -> str:
    answer = run(*(words or (*ASKED, "--radius", "0.1")))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    return answer.err.removeprefix("bnncert: ").strip()


@pytest.mark.parametrize(
    ("name", "head"), [("bnncert.toml", ""), ("pyproject.toml", "[tool.bnncert]\n")]
)
def test_the_command_line_wins(folder: Path, run: Run, name: str, head: str) -> None:
    write(f'{head}radius = 0.25\nmethod = "interval"\nrivals = [1, 2]\nseed = 5\n', name)
    answer = run(*ASKED, "--json", "a.json", "--seed", "6")
    assert (answer.code, answer.err) == (0, "")
    tree = read_json(folder / "a.json")
    assert (tree["method"], tree["seed"], tree["region"]["radius"]) == ("interval", 6, 0.25)
    assert "[default: interval]" in run("verify", "--help").out


def test_a_table_of_a_command_wins_over_keys_of_all(folder: Path, run: Run) -> None:
    write('method = "lp"\nmemory-limit = 2\n[verify]\nmethod = "interval"\nradius = "0.1"\n')
    assert run(*ASKED, "--json", "a.json").code == 0
    assert read_json(folder / "a.json")["method"] == "interval"
    answer = run("bound", "net.npz", "x.npy", "--radius", "0.1", "--json", "b.json")
    assert answer.code == 0 and read_json(folder / "b.json")["method"] == "lp"


def test_defaults_are_not_refused_as_unused_options(folder: Path, run: Run) -> None:
    """An option on the command line that the method does not read is an error."""
    write('samples = 100\nform = "soft"\n')
    assert run(*ASKED, "--radius", "0.1", "--method", "interval").code == 0


def test_values_of_other_files_and_other_meanings_are_kept(folder: Path, run: Run) -> None:
    write("timeout = 0.5\n")
    Path("plan.yaml").write_text(
        "networks: [{name: n, file: net.npz}]\ndata: x.npy\nradii: [0.1]\nmethods: [interval]\n"
        "timeout: 3\n"
    )
    assert "at most 3 s of work" in run("experiment", "plan.yaml", "--dry-run").out
    write("timeout = 0.5\n[experiment]\ntimeout = 2\n")
    assert "at most 2 s of work" in run("experiment", "plan.yaml", "--dry-run").out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiemout = 3", "tiemout is not an option; did you mean timeout?"),
        ("[verify]\ntiemout = 3", "[verify] tiemout is not an option; did you mean timeout?"),
        ('[verify]\nsparsity = "dense"', "[verify] sparsity is not an option of verify"),
        ("[verfy]\nseed = 3", "[verfy] is not a command; did you mean verify?"),
        ('[run]\nfoo = "x"', "[run] foo is not an option"),
        ("seed = true", "seed is True; expected a value as on the command line"),
        ('norm = "l7"', "norm is 'l7'; "),
        ('seed = "many"', "seed is 'many'; "),
        ("clip = [1]", "clip is [1]; "),
        ("timeout = [1]", "timeout is [1]; expected a single value"),
        ("[verify]\nseed = [1, 2]", "[verify] seed is [1, 2]; expected a single value"),
        ("[verify.seed]\na = 1", "[verify] seed is {'a': 1}; expected a value"),
        ("help = true", "help is not an option"),
        ("seed = ", "not TOML ("),
    ],
)
def test_mistakes_name_the_file_and_the_key(
    folder: Path, run: Run, text: str, message: str
) -> None:
    write(text)
    assert refused(run).startswith(f"{folder / 'bnncert.toml'}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('radius = "wide"', "radius is 'wide'; expected finite numbers >= 0"),
        ('[verify]\nradius = "wide"', "radius is 'wide'; expected finite numbers >= 0"),
        ('radius = 0.1\nrivals = "none"', "rivals is 'none'; expected all, runner-up, or"),
        ("radius = 0.1\nseed = -3", "seed is -3; expected an integer >= 0"),
    ],
)
def test_values_that_the_command_refuses_name_the_file(
    folder: Path, run: Run, text: str, message: str
) -> None:
    write(text)
    assert refused(run, *ASKED).startswith(f"{folder / 'bnncert.toml'}: {message}")


def test_a_mistake_on_the_command_line_does_not_name_the_file(folder: Path, run: Run) -> None:
    write("radius = 0.1")
    assert refused(run, *ASKED, "--radius", "far").startswith("--radius is 'far'; ")
    assert refused(run, *ASKED, "--seed", "-1").startswith("--seed is -1; ")


def test_a_flag_is_true_or_false(folder: Path, run: Run) -> None:
    write("exact = 1")
    assert "exact is 1; expected true or false" in refused(run, "radius", "net.npz", "x.npy")
    write("dry-run = true")
    Path("plan.yaml").write_text(
        "networks: [{name: n, file: net.npz}]\ndata: x.npy\nradii: [0.1]\nmethods: [interval]\n"
    )
    assert run("experiment", "plan.yaml").code == 0
    assert not Path("plan.sqlite").exists()


def test_the_nearest_file_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "repository" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "bnncert.toml").write_text("seed = 1")
    # Without a repository only the working directory counts.
    assert find_defaults(inner) is None
    (tmp_path / "repository" / ".git").mkdir()
    assert find_defaults(inner) is None
    (tmp_path / "repository" / "pyproject.toml").write_text("[tool.bnncert]\nseed = 2")
    found = find_defaults(inner)
    assert found is not None and found.common == {"--seed": 2}
    (inner.parent / "pyproject.toml").write_text("[tool.other]\nx = 1\n[project]\nname='bnncert'")
    (inner.parent / "bnncert.toml").write_text("seed = 3")
    found = find_defaults(inner)
    assert found is not None and found.path == inner.parent / "bnncert.toml"


def test_a_project_file_of_another_kind(folder: Path, run: Run) -> None:
    write("tool = 3 # bnncert", "pyproject.toml")
    assert run(*ASKED, "--radius", "0.1").code == 0
    write("[tool]\nbnncert = 3", "pyproject.toml")
    assert "tool.bnncert is 3; expected a table" in refused(run)
    write("this is no TOML, and not about the program", "pyproject.toml")
    assert run(*ASKED, "--radius", "0.1").code == 0


def test_a_folder_with_the_name_of_the_file(folder: Path, run: Run) -> None:
    Path("bnncert.toml").mkdir()
    assert refused(run).endswith("bnncert.toml: is a directory, expected a file")


def test_without_a_file_no_parser_is_imported(folder: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys; sys.argv = ['bnncert', 'methods']\nfrom bnncert.cli.program import main\n"
            "try: main()\nexcept SystemExit: print(sorted(sys.modules), file=sys.stderr)",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "'tomllib'" not in done.stderr
