"""Answers of `learning` about tiny networks, compared with brute force and with `propagation`.

One case is a random network of the shapes of `brute_force`, a region (in some cases its grid), and
a question about it.  `learning` has to decide it, as brute force says; where `propagation` decides
too, it must say the same; and a certificate has to be accepted.
"""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from tests.brute_force import faults
from tests.random_questions import KINDS, random_ask
from tests.random_shapes import SHAPES, random_shaped_question, with_grid

from benchmarks.soundness.part import Outcome
from bnncert import Options
from bnncert.kernel import RejectedError, UnreadableError, check
from bnncert.questions.prover import solve

NUMBER = 10_000

#: Seconds in which a question must be decided; how often the inputs are those on a grid, and a
#: certificate is written.
SECONDS, GRID, CERTIFICATE = 60.0, 0.2, 0.3


def case(seed: int, number: int) -> Outcome:
    """Ask one question about one network."""
    rng = np.random.default_rng([seed, number])
    kind, shape = str(rng.choice(KINDS)), str(rng.choice(SHAPES))
    zero: Any = str(rng.choice(["plus", "minus", "either"]))
    shaped = random_shaped_question(rng, shape, kind, zero)
    if rng.random() < GRID:
        shaped = with_grid(rng, shaped)
    network, region = shaped.net.build(), shaped.on_grid or shaped.region
    ask = random_ask(rng, network, region)
    about = f"{shape}, sign(0) {zero}, {region.describe()}, {ask.text}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "answer.cert"
            wanted = path if rng.random() < CERTIFICATE else None
            options = Options(seed=int(rng.integers(5)))
            result = solve(
                [ask.problem], "learning", SECONDS, options, None, check_centre=False,
                stated=network, certificate=wanted,
            )  # fmt: skip
            wrong = faults(shaped.net, shaped.region, shaped.scores(), ask.targets, result)
            if result.certificate is not None:
                check(path, network)
            elif wanted is not None and result.status == "robust":
                wrong.append("robust, without a certificate")
        other = solve([ask.problem], "propagation", SECONDS, options, None, check_centre=False)
        both = {result.status, other.status}
        if both == {"robust", "not_robust"}:
            wrong.append(f"{result.status}, and propagation says {other.status}")
    except (RejectedError, UnreadableError) as error:
        wrong = [f"the certificate is refused: {error}"]
    except Exception:
        wrong = ["exception: " + traceback.format_exc().strip().replace("\n", " | ")]
    if wrong:
        return Outcome(1, {"wrong": 1}, tuple(f"{about}: {line}" for line in wrong))
    where = kind if shaped.on_grid is None else f"{kind} on a grid"
    tally = {f"{where}, {shape}: {result.status}": 1, f"{len(network.layers)} layers": 1}
    tally[f"certificates: {result.status}"] = int(result.certificate is not None)
    return Outcome(1, tally)
