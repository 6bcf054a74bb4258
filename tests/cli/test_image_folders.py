"""Folders of images as the input of verify, bound, radius, run and experiment."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bnncert.model.loading import load_demo_images
from tests.cli.diamond import Run

#: Bundled images in the folder, and the mode in which each is stored.
MODES = {0: "L", 1: "RGB", 8: "P", 10: "L"}


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of four images with a table of their classes, in the working directory."""
    monkeypatch.chdir(tmp_path)
    data, folder = load_demo_images(), tmp_path / "images"
    folder.mkdir()
    lines = ["file,label"]
    for index, mode in MODES.items():
        picture = Image.fromarray(data.pixels[index].reshape(28, 28)).convert(mode)
        picture.save(folder / f"{index}.png")
        lines.append(f"{index}.png,{data.labels[index]}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


def test_verify_prints_a_line_for_each_image_and_a_total(images: Path, run: Run) -> None:
    asked = ("--radius", "0.25px", "--json", "all.json")
    answer = run("verify", "demo:sparse", "images", *asked)
    assert (answer.code, answer.err) == (1, "")
    note, title, *lines, total = answer.out.splitlines()
    assert note == (
        "note: images: 1 image(s) RGB converted to grey; 1 image(s) palette converted to grey"
    )
    assert title.startswith("mnist_sparse.npz, images: 4 image(s), L-inf ball of radius ")
    limit = "time limit 60 s for each image (--timeout none lifts it)"
    assert title.endswith(f"; labels: images/labels.csv; {limit}")
    assert [line.split()[0] for line in lines] == ["0.png", "1.png", "8.png", "10.png"]
    line = re.fullmatch(r"0\.png   label 7  robust +margin at least (\S+)  \d+\.\d\d s", lines[0])
    assert line is not None
    alone = run("verify", "demo:sparse", "images/0.png", "--label", "7", "--radius", "0.25px")
    assert f"margin at least {line[1]}\n" in alone.out
    assert re.fullmatch(r"8\.png   label 5  misclassified +class 6, margin -19.*", lines[2])
    assert total.startswith("3 robust, 0 not robust, 1 misclassified, 0 undecided of 4 in ")
    tree = json.loads((images.parent / "all.json").read_text())
    assert [one["input"] for one in tree["images"]] == [f"images/{k}.png" for k in MODES]
    assert [one["status"] for one in tree["images"]] == ["robust", "robust", "not_robust", "robust"]


def test_some_rivals_are_asked_about_as_in_a_run(images: Path, run: Run) -> None:
    ask = ("verify", "demo:sparse", "images", "--radius", "0.25px", "--method", "interval")
    answer = run(*ask, "--rivals", "7")
    assert (answer.code, answer.err) == (1, "")
    assert "note: 1 input(s) of class 7, the rival itself, left out" in answer.out
    lines = answer.out.splitlines()[-4:]
    assert [line.split()[0] for line in lines[:3]] == ["1.png", "8.png", "10.png"]
    assert "8.png   label 5  misclassified  class 6, margin -19" in lines[1]
    assert lines[-1].startswith("2 robust, 0 not robust, 1 misclassified, 0 undecided of 3 in ")
    wrong = run(*ask, "--label", "11")
    assert wrong.code == 2 and "--label: label 0 is 11; the network has classes" in wrong.err


def test_one_image_of_a_folder_is_the_same_question(images: Path, run: Run) -> None:
    asked = ("--radius", "0.25px", "--rivals", "3")
    by_index = run("verify", "demo:sparse", "images", "--index", "1", *asked)
    by_name = run("verify", "demo:sparse", "images/1.png", "--label", "2", *asked)
    bundled = run("verify", "demo:sparse", "demo:1", *asked)
    tables = [answer.out.splitlines()[-3].split()[:4] for answer in (by_index, by_name, bundled)]
    assert tables[0] == tables[1] == tables[2]
    assert by_name.out.startswith("note: images/1.png: RGB converted to grey\n")
    assert by_index.out.splitlines()[1].startswith("mnist_sparse.npz, images/1.png: label 2, ")
    bound = run("bound", "demo:sparse", "images", "--radius", "0.25px")
    assert bound.code == 2 and "choose one with --index" in bound.err


def test_radius(images: Path, run: Run) -> None:
    how = ("--max", "0.002", "--tolerance", "0.002", "--method", "interval")
    answer = run("radius", "demo:sparse", "images", *how, "--json", "radii.json")
    assert (answer.code, answer.err) == (1, "")
    lines = answer.out.splitlines()[-5:]
    assert "8.png   label 5  certified -, falsified 0.0" in lines[2]
    assert lines[-1].startswith("4 image(s) in ")
    tree = json.loads((images.parent / "radii.json").read_text())
    assert [one["label"] for one in tree["images"]] == [7, 2, 5, 0]


def test_quiet_radii_are_printed(images: Path, run: Run) -> None:
    how = ("--max", "0.002", "--tolerance", "0.002", "--method", "interval", "-q")
    lines = run("radius", "demo:sparse", "images", *how).out.splitlines()
    assert len(lines) == 5
    assert "8.png   label 5  certified -, falsified 0.0" in lines[2]


def test_exact_radii(images: Path, run: Run) -> None:
    how = ("--exact", "--grid", "1px", "--max", "0.0079", "--method", "interval")
    answer = run("radius", "demo:sparse", "images", *how)
    assert answer.code == 1
    assert "8.png   label 5  certified -, falsified 0 steps" in answer.out


def test_run_and_experiment(images: Path, run: Run) -> None:
    how = ("--radius", "0.1px", "--method", "interval", "--timeout", "60", "--out", "run.sqlite")
    answer = run("run", "demo:sparse", "--data", "images", *how)
    assert (answer.code, answer.err) == (0, "")
    assert "note: images: 1 image(s) RGB converted to grey" in answer.out
    assert answer.out.splitlines()[-1] == "4 instances in run.sqlite"
    Path("plan.yaml").write_text(
        "networks: [{name: n, file: demo:sparse}]\ndata: images\nradii: [0.1px]\n"
        "methods: [interval]\ntimeout: 60\n"
    )
    planned = run("experiment", "plan.yaml", "--out", "run.sqlite", "--dry-run")
    assert (planned.code, planned.err) == (0, "")
    assert "4 instances, 4 in run.sqlite already" in planned.out


@pytest.mark.parametrize("command", ["verify", "radius", "run"])
def test_a_broken_image_is_one_line(images: Path, run: Run, command: str) -> None:
    (images / "3.png").write_bytes((images / "0.png").read_bytes()[:50])
    (images / "labels.csv").unlink()
    asked = {
        "verify": ("images", "--radius", "1px"),
        "radius": ("images",),
        "run": ("--data", "images", "--radius", "1px", "--out", "r.sqlite"),
    }
    answer = run(command, "demo:sparse", *asked[command])
    assert answer.code == 2 and answer.out == ""
    assert answer.err.startswith("bnncert: images/3.png: not a readable image (")
    assert answer.err.count("\n") == 1


def test_wrong_uses(images: Path, run: Run) -> None:
    ask = ("verify", "demo:sparse", "images", "--radius", "0.1px")
    for option, value in (("--certificate", "p.bnncert"), ("--save-counterexample", "c.png")):
        answer = run(*ask, option, value)
        assert answer.code == 2 and f"{option} is a file about one input" in answer.err
    before = (images / "labels.csv").read_text()
    answer = run(*ask, "--json", "images/labels.csv")
    assert answer.code == 2 and "this command reads it" in answer.err
    assert (images / "labels.csv").read_text() == before
    answer = run(*ask, "--input", "demo:1")
    assert answer.code == 2 and "images and --input demo:1 both name the input" in answer.err
    (images / "labels.csv").write_text("0.png,7\n1.png,2\n8.png,5\n10.png,11\n")
    answer = run(*ask)
    assert answer.code == 2 and answer.out.startswith("note: ")
    assert "images/labels.csv: label 3 is 11; the network has classes 0 to 9" in answer.err


def test_images_of_one_size_and_another_shape(images: Path, run: Run) -> None:
    """Both fit a network of 784 inputs that states no shape."""
    Image.new("L", (56, 14)).save(images / "9.png")
    (images / "labels.csv").unlink()
    np.savez("flat.npz", W0=np.ones((1, 784)), b0=[0.5], W1=[[1.0], [-1.0]], b1=[0.0, 0.0])
    answer = run("verify", "flat.npz", "images", "--radius", "1", "--scale", "0", "255")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert "images/9.png: image of another shape than 0.png: 56 x 14 pixels" in answer.err


@pytest.mark.parametrize("command", ["verify", "radius"])
def test_the_answers_before_an_interrupt_are_in_the_json(
    images: Path, run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    place, name = {
        "verify": ("bnncert.results.instance", "verify"),
        "radius": ("bnncert.questions.radius.radius", "radius"),
    }[command]
    module = importlib.import_module(place)
    ask, asked = getattr(module, name), []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return ask(*arguments, **options)

    monkeypatch.setattr(module, name, interrupted)
    # The process ends at once after Ctrl-C.
    monkeypatch.setattr("bnncert.cli.program._end_interrupted", lambda: sys.exit(130))
    # Without a batch: `sample` does not begin with intervals.
    limits = {
        "verify": ("--radius", "0.25px", "--method", "sample"),
        "radius": ("--max", "0.25px"),
    }[command]
    answer = run(command, "demo:sparse", "images", *limits, "--json", "all.json")
    assert answer.code == 130
    assert "(interrupted after 2 of 4 images)" in answer.out
    tree = json.loads((images.parent / "all.json").read_text())
    assert tree["interrupted"] is True
    assert [one["input"] for one in tree["images"]] == ["images/0.png", "images/1.png"]
