"""The worked examples of docs/examples: their verdicts, and independent checks of them.

The checks read the committed JSON files themselves and share no code with the package.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import bnncert
from bnncert.engine.verdict import Result
from bnncert.questions.prover import solve

DOCS = Path(__file__).resolve().parent.parent / "docs"
FloatArray = npt.NDArray[np.float64]

PROVED = ("A1", "A2", "B2", "C")
FAILED = ("A3", "B1")
CLEAR, STRONG = 0, (3, 4)
STRONG_LIMIT = 5.0


@pytest.fixture(scope="module", autouse=True)
def _examples_on_path() -> Iterator[None]:
    # The scripts import each other as siblings, as they do when run.
    sys.path.insert(0, str(DOCS / "examples"))
    yield
    sys.path.remove(str(DOCS / "examples"))


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def trainer(name: str) -> ModuleType:
    pytest.importorskip("torch", reason="training needs the extra 'train'")
    return script(name)


@dataclass(frozen=True)
class RawNetwork:
    """W and b as the file has them, evaluated here with sign(0) = +1."""

    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]

    @staticmethod
    def read(name: str) -> RawNetwork:
        tree = json.loads((DOCS / "examples" / name).read_text())
        assert tree["sign_zero"] == "plus"
        count = sum(key.startswith("W") for key in tree)
        weights = tuple(np.array(tree[f"W{i}"], dtype=np.float64) for i in range(count))
        biases = tuple(np.array(tree[f"b{i}"], dtype=np.float64) for i in range(count))
        return RawNetwork(weights, biases)

    def scores(self, points: FloatArray) -> FloatArray:
        x = points
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.where(x @ w.T + b >= 0, 1.0, -1.0)
        return np.asarray(x @ self.weights[-1].T + self.biases[-1])

    def exact_scores(self, point: list[Fraction]) -> list[Fraction]:
        def affine(w: FloatArray, b: FloatArray, x: list[Fraction]) -> list[Fraction]:
            rows = zip(w.tolist(), b.tolist(), strict=True)
            return [
                sum((Fraction(p) * q for p, q in zip(row, x, strict=True) if p), Fraction(c))
                for row, c in rows
            ]

        x = point
        for w, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = [Fraction(1) if v >= 0 else Fraction(-1) for v in affine(w, b, x)]
        return affine(self.weights[-1], self.biases[-1], x)


def run_quietly(name: str) -> tuple[Any, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        answer = script(name).main()
    return answer, printed.getvalue()


# -- the controller --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def advisory_run(_examples_on_path: None) -> tuple[dict[str, Result], str]:
    results, printed = run_quietly("advisory")
    return results, printed


@pytest.fixture(scope="module")
def advisory_boxes(_examples_on_path: None) -> dict[str, bnncert.Region]:
    module = script("advisory")
    network = bnncert.load(DOCS / "examples" / "advisory.json")
    return {item.name: item.problem.region for item in module.properties(network)}


def shortfall(name: str, scores: FloatArray) -> FloatArray:
    """How far each row of scores is from violating the property (<= 0: it does)."""
    if name.startswith("A"):
        return np.asarray(scores[:, 1:].max(axis=1) - scores[:, CLEAR])
    if name.startswith("B"):
        return np.asarray(scores[:, CLEAR] - scores[:, 1:].max(axis=1))
    # Meeting the limit is allowed; the scores are multiples of 1/256, so half of one is enough.
    return np.asarray(STRONG_LIMIT - scores[:, STRONG].max(axis=1) + 1 / 512)


def hard_points(net: RawNetwork, name: str, region: bnncert.Region) -> FloatArray:
    """Return a grid, random points, and points that a local search moved towards a violation."""
    generator = np.random.default_rng(7)
    lo, hi = region.lo, region.hi
    axes = [np.linspace(a, b, 7) for a, b in zip(lo, hi, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, lo.size)
    spread = generator.uniform(lo, hi, (40_000, lo.size))
    values = shortfall(name, net.scores(spread))
    moving = spread[np.argsort(values, kind="stable")[:3000]]
    best = shortfall(name, net.scores(moving))
    for width in np.geomspace(0.5, 0.01, 30):
        step = generator.normal(size=moving.shape) * width * (hi - lo)
        step *= generator.uniform(size=moving.shape) < 0.5
        tried = np.clip(moving + step, lo, hi)
        found = shortfall(name, net.scores(tried))
        # Sideways moves too: a network of signs is flat almost everywhere.
        better = found <= best
        moving[better], best[better] = tried[better], found[better]
    return np.concatenate([grid, spread, moving])


def test_advisory_verdicts(advisory_run: tuple[dict[str, Result], str]) -> None:
    results, printed = advisory_run
    assert {name: r.status for name, r in results.items()} == {
        **dict.fromkeys(PROVED, "robust"),
        **dict.fromkeys(FAILED, "not_robust"),
    }
    assert printed.count("holds (") == len(PROVED)
    assert printed.count("FAILS (") == len(FAILED)


def test_advisory_documentation_shows_the_properties(
    advisory_run: tuple[dict[str, Result], str],
) -> None:
    page = (DOCS / "examples.md").read_text()
    lines = advisory_run[1].splitlines()
    for name in (*PROVED, *FAILED):
        (stated,) = [line for line in lines if line.startswith(f"{name:3}")]
        verdict = "holds" if name in PROVED else "FAILS"
        assert f"{stated}\n     {verdict} (" in page


def test_advisory_boxes_are_what_the_words_say(
    advisory_boxes: dict[str, bnncert.Region],
) -> None:
    module = script("advisory")
    whole = [[0, -180, -180, 50, 50], [8000, 180, 180, 250, 250]]
    ahead = [[500, -22.5, -180, 50, 50], [1500, 22.5, 180, 250, 250]]
    expected = {
        "A1": [[500, -22.5, 90, 50, 50], [1500, 22.5, 180, 250, 250]],
        "A2": [[500, -22.5, -45, 150, 50], [1500, 22.5, 45, 250, 150]],
        "A3": ahead,
        "B1": [[6000, *whole[0][1:]], whole[1]],
        "B2": [[7000, *whole[0][1:]], whole[1]],
        "C": [[6000, *whole[0][1:]], whole[1]],
    }
    assert expected.keys() == advisory_boxes.keys()
    for name, ends in expected.items():
        region = advisory_boxes[name]
        physical = [module.to_encounters(region.lo), module.to_encounters(region.hi)]
        # Every limit is exact after scaling, so it must come back exactly.
        assert np.array_equal(physical, np.array(ends, dtype=np.float64))
        assert np.array_equal(module.to_inputs(physical), [region.lo, region.hi])


@pytest.mark.parametrize("name", PROVED)
def test_no_point_contradicts_a_proved_property(
    name: str,
    advisory_boxes: dict[str, bnncert.Region],
    advisory_run: tuple[dict[str, Result], str],
) -> None:
    net = RawNetwork.read("advisory.json")
    points = hard_points(net, name, advisory_boxes[name])
    values = shortfall(name, net.scores(points))
    assert values.min() > 0
    # The bounds that came with the verdict must not exceed what was seen either.
    assert advisory_run[0][name].lower <= values.min() + 1e-9


@pytest.mark.parametrize("name", FAILED)
def test_local_search_breaks_the_failing_properties(
    name: str, advisory_boxes: dict[str, bnncert.Region]
) -> None:
    # Otherwise its silence about the proved ones would mean little.
    net = RawNetwork.read("advisory.json")
    points = hard_points(net, name, advisory_boxes[name])
    assert shortfall(name, net.scores(points)).min() <= 0


@pytest.mark.parametrize("name", FAILED)
def test_counterexamples_violate_exactly(
    name: str,
    advisory_boxes: dict[str, bnncert.Region],
    advisory_run: tuple[dict[str, Result], str],
) -> None:
    found = advisory_run[0][name].counterexample
    assert found is not None and "exact" in found.replayed_in
    point = list(found.exact) if found.exact else [Fraction(v) for v in found.point.tolist()]
    region = advisory_boxes[name]
    for v, a, b in zip(point, region.lo.tolist(), region.hi.tolist(), strict=True):
        assert Fraction(a) <= v <= Fraction(b)
    scores = RawNetwork.read("advisory.json").exact_scores(point)
    if name == "A3":
        assert scores[CLEAR] >= max(scores[1:])
        assert found.value == max(scores[1:]) - scores[CLEAR]
    else:
        assert scores[CLEAR] <= max(scores[1:])


def test_highest_strong_score_is_what_the_documentation_says(
    advisory_boxes: dict[str, bnncert.Region],
) -> None:
    module = script("advisory")
    network = bnncert.load(DOCS / "examples" / "advisory.json")
    for limit, status in ((4.11, "not_robust"), (4.12, "robust")):
        problem = module.strong_scores_at_most(network, advisory_boxes["C"], limit)
        assert module.check(problem).status == status


def test_encounter_box_refuses_unknown_quantities() -> None:
    with pytest.raises(ValueError, match="altitude"):
        script("advisory").encounter_box(altitude=(0.0, 1.0))


# -- the oscillator --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def energy_run(_examples_on_path: None) -> tuple[list[Any], str]:
    answers, printed = run_quietly("energy")
    return answers, printed


def exact_minimum(net: RawNetwork, region: bnncert.Region, tolerance: Fraction) -> Fraction:
    """Return inf f over the box: layer 1 cuts it into rectangles on which y is constant."""
    cells: list[list[tuple[Fraction, Fraction, Fraction]]] = []
    first, bias = net.weights[0], net.biases[0]
    assert np.all(np.count_nonzero(first, axis=1) == 1), "layer 1 is parallel to the axes"
    assert set(np.unique(first)) <= {-1.0, 0.0, 1.0}
    for axis in range(2):
        low, high = Fraction(float(region.lo[axis])), Fraction(float(region.hi[axis]))
        marks = {low, high}
        for j in np.flatnonzero(first[:, axis]).tolist():
            mark = -Fraction(float(bias[j])) / Fraction(float(first[j, axis]))
            if low < mark < high:
                marks.add(mark)
        ordered = sorted(marks)
        # (representative, ends): signs can differ on the marks themselves.
        pieces = [(m, m, m) for m in ordered]
        pieces += [((a + b) / 2, a, b) for a, b in pairwise(ordered)]
        cells.append(pieces)

    def smallest_square(a: Fraction, b: Fraction) -> Fraction:
        return Fraction(0) if a <= 0 <= b else min(a * a, b * b)

    best: Fraction | None = None
    for (q, *q_ends), (p, *p_ends) in product(*cells):
        later = net.exact_scores([q, p])
        before = smallest_square(*q_ends) + smallest_square(*p_ends)
        value = tolerance + (before - sum((v * v for v in later), Fraction(0))) / 2
        best = value if best is None else min(best, value)
    assert best is not None
    return best


def test_energy_bounds_enclose_the_exact_minimum(energy_run: tuple[list[Any], str]) -> None:
    net = RawNetwork.read("energy.json")
    tolerance = Fraction(script("energy").TOLERANCE)
    for answer in energy_run[0]:
        truth = exact_minimum(net, answer.region, tolerance)
        assert set(answer.lower) == {"sdp-standard", "sdp-tight", "sdp-order2"}
        for bound in answer.lower.values():
            assert Fraction(bound) <= truth
        assert answer.upper >= float(truth) - 1e-9
        assert answer.lower["sdp-standard"] <= answer.lower["sdp-tight"] + 1e-4
        # Order 2 is exact here up to rounding, except that the relaxations let a neuron whose
        # threshold is the edge of a box (velocity -1/4) have either sign there.
        slack = 0.02 if answer.region.lo[1] == -0.25 else 1e-3
        assert float(truth) - answer.lower["sdp-order2"] < slack


def test_energy_verdicts(energy_run: tuple[list[Any], str]) -> None:
    answers, printed = energy_run
    tiles, crowded, quiet = answers[:16], answers[16], answers[17]
    assert all(a.verdict.startswith("excluded by") for a in tiles)
    assert all(a.lower["sdp-order2"] > 0 for a in tiles)
    by_standard = sum(a.lower["sdp-standard"] > 0 for a in tiles)
    by_tight = sum(a.lower["sdp-tight"] > 0 for a in tiles)
    assert 0 < by_standard < by_tight < 16
    assert crowded.verdict == "occurs"
    assert quiet.verdict == "excluded by sdp-standard"
    assert printed.count("excluded by") == 17 and printed.count("occurs") == 1


def test_energy_tiles_cover_the_square(energy_run: tuple[list[Any], str]) -> None:
    side = script("energy").SIDE
    tiles = [a.region for a in energy_run[0][:16]]
    for point in product(np.linspace(-side, side, 41).tolist(), repeat=2):
        assert any(np.all(t.lo <= point) and np.all(point <= t.hi) for t in tiles)


def test_no_state_contradicts_the_energy_verdicts(energy_run: tuple[list[Any], str]) -> None:
    net = RawNetwork.read("energy.json")
    module = script("energy")
    generator = np.random.default_rng(3)
    for answer in energy_run[0]:
        lo, hi = answer.region.lo, answer.region.hi
        axes = [np.linspace(a, b, 60) for a, b in zip(lo, hi, strict=True)]
        grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
        states = np.concatenate([grid, generator.uniform(lo, hi, (2000, 2))])
        later = net.scores(states)
        f = module.TOLERANCE + (np.sum(states**2, axis=1) - np.sum(later**2, axis=1)) / 2
        assert f.min() >= max(answer.lower.values())
        # A sample of the example may beat this one, but not by much.
        assert f.min() <= answer.upper + 0.02
        assert (f.min() > 0) == answer.verdict.startswith("excluded")


def test_energy_polynomial_is_the_energy_margin() -> None:
    module = script("energy")
    network = bnncert.load(DOCS / "examples" / "energy.json")
    net = RawNetwork.read("energy.json")
    polynomial = module.energy_margin(network)
    assert polynomial.degree == 2
    for state in np.random.default_rng(0).uniform(-1, 1, (50, 2)):
        signs = network.last_signs(state[None, :])[0]
        later = net.scores(state[None, :])[0]
        wanted = module.TOLERANCE + (state @ state - later @ later) / 2
        assert polynomial([*state.tolist(), *signs.tolist()]) == pytest.approx(wanted, abs=1e-12)


# -- training --------------------------------------------------------------------------------


def test_policy_follows_its_rules() -> None:
    module = trainer("advisory_train")
    cases = {
        (1000.0, 0.0, 180.0, 150.0, 150.0): 4,
        (1000.0, -60.0, 0.0, 150.0, 150.0): 3,
        (3000.0, 60.0, 0.0, 150.0, 150.0): 2,
        (3000.0, -60.0, 0.0, 150.0, 150.0): 1,
        (1000.0, 150.0, 0.0, 150.0, 150.0): 0,
        (4000.0, 0.0, 180.0, 150.0, 150.0): 0,
        (6000.0, 0.0, 180.0, 250.0, 250.0): 0,
        (5999.0, 0.0, 180.0, 250.0, 250.0): 2,
    }
    assert module.policy(np.array(list(cases))).tolist() == list(cases.values())


def test_counterexamples_disagree_with_the_policy(
    advisory_run: tuple[dict[str, Result], str],
) -> None:
    module = trainer("advisory_train")
    for name, advisory in (("A3", False), ("B1", True)):
        found = advisory_run[0][name].counterexample
        assert found is not None
        wanted = module.policy(script("advisory").to_encounters(found.point)[None, :])[0]
        assert (wanted == CLEAR) == advisory


def test_folding_keeps_every_sign() -> None:
    module = trainer("advisory_train")
    torch = importlib.import_module("torch")
    torch.manual_seed(1)
    net = module.TernaryNet((5, 8, 8, 5))
    inputs, _ = module.sample_encounters(np.random.default_rng(0), 500)
    points = torch.from_numpy(inputs).float()
    with torch.no_grad():
        for norm in net.norms:
            # Negative gains flip the row.
            norm.weight.uniform_(-2.0, 2.0)
            norm.bias.uniform_(-1.0, 1.0)
        net(points)
        net.eval()
        expected = net(points).numpy()
    weights, biases = module.folded_layers(net, 2**40)
    x = inputs.astype(np.float32).astype(np.float64)
    for w, b in zip(weights, biases, strict=True):
        x = np.where(x @ w.T + b >= 0, 1.0, -1.0)
    scores = x @ net.output.weights().detach().double().numpy().T
    # float32 rounding may decide a point that lies on a threshold differently.
    assert np.mean(np.any(np.abs(scores - expected) > 1e-3, axis=1)) <= 0.01


@pytest.mark.parametrize(
    ("name", "sizes"), [("advisory_train", (5, 32, 32, 5)), ("energy_train", (2, 24, 24, 2))]
)
def test_one_epoch_of_training(name: str, sizes: tuple[int, ...], tmp_path: Path) -> None:
    network = trainer(name).train(samples=500, epochs=1)
    assert network.sizes == sizes
    for layer in network.layers:
        assert set(np.unique(layer.weights.toarray())) <= {-1, 0, 1}
    output = 64 * network.output.weights
    assert np.array_equal(output, np.rint(output))
    network.save(tmp_path / "net.json")
    assert bnncert.load(tmp_path / "net.json").content_hash == network.content_hash


def test_oscillator_keeps_its_energy() -> None:
    module = trainer("energy_train")
    states, later = module.sample_states(np.random.default_rng(0), 100)
    assert np.sum(later**2, axis=1) == pytest.approx(np.sum(states**2, axis=1))
    # From rest on the right, the spring pulls to the left.
    assert module.advance(np.array([[1.0, 0.0]]))[0, 1] < 0


def test_several_functions_at_once_are_decided_in_time() -> None:
    # Branching bounds one function at a time and took a hundred times as long.
    network = bnncert.load(DOCS / "examples" / "advisory.json")
    chosen = {item.name: item.problem for item in script("advisory").properties(network)}
    result = solve([chosen["A1"]], method="auto", timeout=60)
    assert (result.status, result.targets[0].stage != "bab") == ("robust", True)
