"""Small valid files of every format, and the functions with which the commands read them."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

import bnncert
from bnncert.extras.training.datasets import load_dataset
from bnncert.extras.vnncomp.category import read_instances
from bnncert.model.formats.inputs import pick_point, read_array, read_labels
from bnncert.problem import from_vnnlib
from bnncert.report.csv_export import write_csv
from bnncert.report.latex_export import write_latex
from bnncert.report.page.document import write_page
from bnncert.report.vnncomp_files import Line, ResultsTable
from bnncert.results.configuration import read_configuration
from bnncert.results.labelled_points import read_data
from bnncert.results.store import ResultsFile, read_recorded
from tests.competition_files import diamond, square
from tests.model.formats.onnx_sketch import Sketch, normalisation, ternary
from tests.report.results_sketch import NETWORK, campaign_rows, stored_input, write_results
from tests.results.tiny import CONFIG
from tests.results.tiny import write_files as write_experiment

DATA = Path(__file__).resolve().parent.parent / "data"

BALL = """(vnnlib-version <2.0>)
(declare-network f
  (declare-input X float32 [1,2])
  (declare-output Y float32 [3]))
(assert (and (>= X[0,0] 0.0) (<= X[0,0] 2.0)))
(assert (and (>= X[0,1] -1.0) (<= X[0,1] 1.0)))
(assert (<= (+ (* (- X[0,0] 1.1) (- X[0,0] 1.1)) (* X[0,1] X[0,1])) 0.6))
(assert (or (>= Y[1] Y[0]) (>= Y[2] Y[0])))
"""


@dataclass(frozen=True)
class Format:
    """How files of one format are named, changed and read.

    Attributes
    ----------
    files
        Valid files.
    inside
        How :func:`tests.fuzzing.mutations.change` reaches their inside.
    suffix
        How the name of a broken file ends.
    read
        What the commands do with such a file; an existing folder holds nothing else that changes.
    """

    files: tuple[bytes, ...]
    inside: str
    suffix: str
    read: Callable[[Path], object]


def _npz(**arrays: object) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def _saved(network: bnncert.Network, folder: Path, name: str) -> bytes:
    network.save(folder / name)
    return (folder / name).read_bytes()


def _images() -> dict[str, bytes]:
    pixels = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)
    found = {}
    for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "PPM"):
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, kind)
        found[kind] = content.getvalue()
    return found


def _convolution() -> bytes:
    rng = np.random.default_rng(1)
    sketch = Sketch(1, 1, 4, 4).then("Conv", ternary(rng, 2, 1, 2, 2), kernel_shape=[2, 2])
    sketch.then("BatchNormalization", *normalisation(rng, 2)).then("MaxPool", kernel_shape=[2, 2])
    sketch.then("Sign").then("Add", 0.1).then("Sign").then("Flatten")
    model = sketch.then("Gemm", ternary(rng, 8, 3), ternary(rng, 3)).model()
    return bytes(model.SerializeToString())


def _safetensors() -> tuple[bytes, bytes]:
    arrays = {"fc1.weight": np.ones((2, 2), "<f4"), "fc2.weight": np.ones((3, 2), "<f4")}
    header, body = {}, b""
    for name, array in arrays.items():
        place = [len(body), len(body) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": place}
        body += array.tobytes()
    text = json.dumps(header).encode()
    layers = [
        {"type": "linear", "weights": "fc1", "quantizer": "sign"},
        {"type": "sign", "zero": "plus"},
        {"type": "linear", "weights": "fc2"},
    ]
    described = {"input_shape": [2], "layers": layers, "input_lo": -1, "input_hi": [1, 1]}
    return len(text).to_bytes(8, "little") + text + body, json.dumps(described).encode()


def _batches() -> dict[str, bytes]:
    images = np.zeros((2, 3072), np.uint8)
    binary = np.hstack([np.array([[0], [1]], np.uint8), images]).tobytes()
    pickled = pickle.dumps({b"data": images, b"labels": [0, 1]}, protocol=2)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name in ("data_batch_1.bin", "test_batch.bin"):
            info = tarfile.TarInfo(f"cifar/{name}")
            info.size = len(binary)
            archive.addfile(info, io.BytesIO(binary))
    return {"binary": binary, "pickled": pickled, "archive": content.getvalue()}


def _report(path: Path) -> None:
    recorded = read_recorded(path)
    write_page(recorded, path.with_suffix(".html"))
    write_csv(recorded, path.with_suffix(".csv.d"))
    write_latex(recorded, path.with_suffix(".tex.d"))


def _resume(path: Path) -> None:
    with ResultsFile(path) as results:
        results.rows(), results.networks(), results.inputs()


def _checkpoint(path: Path) -> None:
    beside = path.with_name("net.safetensors")
    beside.write_bytes(_safetensors()[0])
    bnncert.load(beside, path)


def _weights(path: Path) -> None:
    layers = path.with_name("whole.json")
    layers.write_bytes(_safetensors()[1])
    bnncert.load(path, layers)


def _query(path: Path) -> None:
    query = bnncert.read_vnnlib(path)
    from_vnnlib(diamond(), query)


def _point(path: Path) -> None:
    array = read_array(str(path))
    pick_point(array, None, (2,), None, str(path))


def _image(path: Path) -> object:
    return read_array(str(path))


def _batch_folder(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        folder = path.with_name(f"{name}-folder")
        folder.mkdir(exist_ok=True)
        suffix = ".bin" if name == "binary" else ""
        (folder / f"data_batch_1{suffix}").write_bytes(path.read_bytes())
        (folder / f"test_batch{suffix}").write_bytes(_batches()[name])
        return load_dataset(str(folder))

    return read


def _idx(path: Path) -> object:
    folder = path.with_name("idx-folder")
    folder.mkdir(exist_ok=True)
    images, labels = _idx_files()
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    changed = path.read_bytes()
    name = "labels-idx1" if changed[3:4] == b"\x01" else "images-idx3"
    (folder / f"train-{name}-ubyte").write_bytes(changed)
    return load_dataset(str(folder))


def _idx_files() -> tuple[bytes, bytes]:
    images = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (2, 2, 2)) + bytes(8)
    return images, b"\0\0\x08\x01\0\0\0\x02\0\x01"


def _instances(path: Path) -> object:
    for name in ("net.onnx", "q.vnnlib"):
        path.with_name(name).touch()
    return read_instances(path)


def _models(folder: Path) -> dict[str, Format]:
    network = diamond()
    sparse = {
        "W0_data": [1.0, 1.0],
        "W0_indices": [0, 1],
        "W0_indptr": [0, 1, 2],
        "W0_shape": [2, 2],
    }
    rest = {"b0": np.zeros(2), "W1": np.ones((3, 2)), "b1": np.zeros(3), "input_lo": -1.0}
    npz = _saved(network, folder, "a.npz")
    text = _saved(network, folder, "a.json")
    onnx_files = _saved(network, folder, "a.onnx"), _convolution()
    larq = {name: gzip.decompress((DATA / name).read_bytes()) for name in (
        "larq_functional.h5.gz", "larq_plain.keras.gz", "brevitas_relu.onnx.gz",
        "brevitas_two_bits.onnx.gz", "qkeras_dense.json.gz", "qkeras_dense_weights.h5.gz",
    )}  # fmt: skip
    beside = "torch_dense.onnx.data"
    (folder / beside).write_bytes((DATA / beside).read_bytes())
    (folder / "qkeras_weights.h5").write_bytes(larq["qkeras_dense_weights.h5.gz"])
    quantised = larq["brevitas_relu.onnx.gz"], larq["brevitas_two_bits.onnx.gz"]
    weights, layers = _safetensors()
    return {
        "npz": Format((npz, _npz(**sparse, **rest)), "zip", ".npz", bnncert.load),
        "json": Format((text,), "text", ".json", bnncert.load),
        "json.gz": Format((gzip.compress(text),), "gzip", ".json.gz", bnncert.load),
        "onnx": Format(onnx_files, "onnx", ".onnx", bnncert.load),
        "onnx.gz": Format(
            tuple(gzip.compress(f) for f in onnx_files), "gzip", ".onnx.gz", bnncert.load
        ),
        "h5": Format((larq["larq_functional.h5.gz"],), "bytes", ".h5", bnncert.load),
        "keras": Format((larq["larq_plain.keras.gz"],), "zip", ".keras", bnncert.load),
        "qonnx": Format(quantised, "onnx", ".onnx", bnncert.load),
        "external.onnx": Format(
            ((DATA / "torch_dense.onnx").read_bytes(),), "onnx", ".onnx", bnncert.load
        ),
        "keras.json": Format(
            (larq["qkeras_dense.json.gz"],),
            "text",
            ".json",
            lambda path: bnncert.load(folder / "qkeras_weights.h5", path),
        ),
        "safetensors": Format((weights,), "safetensors", ".safetensors", _weights),
        "layers.json": Format((layers,), "text", ".layers.json", _checkpoint),
    }


def _data() -> dict[str, Format]:
    images = _images()
    point = io.BytesIO()
    np.save(point, np.array([0.5, 0.0]))
    points = _npz(points=np.ones((3, 2)), labels=np.array([0, 1, 2]))
    labelled = _npz(images=np.arange(48, dtype=np.uint8).reshape(12, 4), labels=np.arange(12) % 2)
    batches = _batches()
    others = tuple(images[kind] for kind in images if kind != "PNG")
    return {
        "npy": Format((point.getvalue(),), "npy", ".npy", _point),
        "points.npz": Format((points,), "zip", ".npz", lambda path: read_data(str(path))),
        "labels.csv": Format(
            (b"index,label\n0,3\n1,2\n", b"3\n2\n"), "text", ".csv", lambda p: read_labels(str(p))
        ),
        "labels.json": Format(
            (b'{"labels": [3, 2]}', b"[3, 2]"), "text", ".json", lambda p: read_labels(str(p))
        ),
        "png": Format((images["PNG"],), "png", ".png", _image),
        "image": Format(others, "bytes", ".jpg", _image),
        "data.npz": Format((labelled,), "zip", ".npz", lambda path: load_dataset(str(path))),
        "idx": Format(_idx_files(), "bytes", ".idx", _idx),
        "cifar.bin": Format((batches["binary"],), "bytes", ".bin", _batch_folder("binary")),
        "cifar.pickle": Format((batches["pickled"],), "bytes", ".p", _batch_folder("pickled")),
        "cifar.tar.gz": Format(
            (batches["archive"],), "gzip", ".tar.gz", lambda path: load_dataset(str(path))
        ),
    }


def _questions(folder: Path) -> dict[str, Format]:
    query = square(0.3).encode()
    write_experiment(folder)
    as_json = json.dumps(CONFIG, indent=1).encode()
    as_yaml = (
        b"title: tiny\nnetworks:\n  - name: dice\n    random: {sizes: [3, 4, 3], seed: 5}\nparts:\n"
        b"  - networks: [dice]\n    data: {random: {seed: 7}, count: 3}\n    norms: linf\n"
        b"    radii: [0.1, 2e-1]\n    methods: [lp, {method: sample, samples: 50}]\n"
        b"    timeout: 30\n"
    )
    line = Line("c", "net.onnx", "q.vnnlib", 5.0, "auto", "n_q.txt", "a", "b", "sat", 1.0, "attack")
    table = (",".join(line.fields()) + "\n").encode() * 3
    instances = b"net.onnx,q.vnnlib,5\nnet.onnx,q.vnnlib,1.5\n"
    results = write_results(
        folder / "results.sqlite",
        campaign_rows(1)[::9],
        networks=[NETWORK],
        inputs=[stored_input(0)],
    ).read_bytes()
    with ResultsFile(folder / "own.sqlite"):
        pass
    own = (folder / "own.sqlite").read_bytes()
    return {
        "vnnlib": Format((query,), "text", ".vnnlib", _query),
        "vnnlib.gz": Format((gzip.compress(query),), "gzip", ".vnnlib.gz", _query),
        "vnnlib 2.0": Format((BALL.encode(),), "text", ".vnnlib", _query),
        "experiment.yaml": Format((as_yaml, as_json), "text", ".yaml", read_configuration),
        "experiment.json": Format((as_json,), "text", ".json", read_configuration),
        "instances.csv": Format((instances,), "text", ".csv", _instances),
        "results.csv": Format((table,), "text", ".csv", ResultsTable),
        "results.sqlite": Format((results,), "sqlite", ".sqlite", _report),
        "resumed.sqlite": Format((results, own), "sqlite", ".sqlite", _resume),
    }


@lru_cache(maxsize=1)
def formats(folder: Path) -> dict[str, Format]:
    """Return every format by name; `folder` is where some of the valid files are made."""
    return {**_models(folder), **_data(), **_questions(folder)}
