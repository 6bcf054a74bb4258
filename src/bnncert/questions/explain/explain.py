"""The public function: an explanation of the class of an image."""

from __future__ import annotations

import math
import os

import numpy as np
import numpy.typing as npt

from bnncert.engine.methods import Options, Progress
from bnncert.engine.replay import Replayer
from bnncert.errors import InputError
from bnncert.kernel.rules.pixel_blocks import PixelBlocks
from bnncert.model.description import SignZero
from bnncert.model.network import MOST_TIE_CHOICES, Network
from bnncert.problem import Problem, Ties, robustness
from bnncert.questions.explain.explanation_answer import Domain, Explanation
from bnncert.questions.explain.explanation_search import ExplanationSearch
from bnncert.questions.prover import Effort, Prover
from bnncert.questions.usual_limits import QUESTION_SECONDS
from bnncert.regions import Ball
from bnncert.regions.pictures import image_layout


def explain(
    network: Network,
    region: Ball | Domain | npt.ArrayLike,
    label: int | None = None,
    *,
    ties: Ties = "violation",
    sign_zero: SignZero | None = None,
    blocks: int | None = None,
    method: str = "auto",
    timeout: float | None = None,
    question_timeout: float = QUESTION_SECONDS,
    options: Options | None = None,
    progress: Progress | None = None,
    certificate: str | os.PathLike[str] | None = None,
) -> Explanation:
    """Find inputs that suffice for the class of an image, and that are all needed.

    With the inputs of the explanation as in the image, the class is the same for all values of the
    other inputs.  The set is minimal by inclusion if each of its inputs has a witness: a point that
    has another class and differs from the image only in this input and in those that are not kept.

    Parameters
    ----------
    network
        The network, from :func:`load`, :func:`from_torch` or :meth:`Network.from_arrays`.
    region
        The image, and the values of inputs that are not kept: a :class:`Ball` around the image of
        norm "linf", with its radius, data box and grid; or the image alone, for the data box of the
        network.
    label
        Its class (default: the class that the network gives it).
    ties, sign_zero, method, options, progress
        Those of :func:`verify`.
    blocks
        The side of square blocks of pixels that are kept or free as a whole (default: each input
        on its own).  The image has the shape of the network's inputs, or is a square.
    timeout
        Seconds for the whole search; None sets no limit.
    question_timeout
        Seconds for one verification, at most.
    certificate
        The file for a certificate of the explanation, which ``bnncert check`` accepts.

    Returns
    -------
    Explanation
        The kept inputs, which suffice in any case.  At a time limit, or if a verification is
        undecided, some of them are not shown to be needed (`open`).

    Raises
    ------
    InputError
        If the image does not have the label (or only by a tie), is outside the domain, or an
        argument cannot be used, as for :func:`verify`.
    MissingExtraError, Interrupted
        As :func:`verify`.

    Examples
    --------
    The class is 0 if a + b >= 0 and a - b >= 0.  At a = 0.5 and b = 0 both inputs are needed if the
    other one is anywhere in [-1, 1], and one of them if it changes by at most 0.3:

    >>> import bnncert
    >>> net = bnncert.Network.from_arrays(
    ...     [[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2, input_lo=-1, input_hi=1
    ... )
    >>> found = bnncert.explain(net, [0.5, 0], timeout=60)
    >>> found.kept, found.minimal
    ((0, 1), True)
    >>> near = bnncert.Ball("linf", [0.5, 0], 0.3)
    >>> bnncert.explain(net, near, timeout=60).kept
    (1,)
    """
    if not question_timeout > 0:
        raise InputError(f"question timeout is {question_timeout}; expected seconds > 0")
    network = network.with_sign_zero(sign_zero)
    effort = Effort(method, timeout, options, progress, certificate, sign_zero)
    prover = Prover(effort, [network])
    domain = _domain(network, region, blocks)
    own = int(network.classify(domain.image)[0])
    alone = domain.region(np.zeros(domain.units, dtype=np.bool_))
    problem = robustness(network, alone, own if label is None else label, "all", ties)
    _refuse_other_class(problem)
    return ExplanationSearch(problem, ties, domain, prover, question_timeout).outcome()


def _domain(network: Network, region: Ball | Domain | npt.ArrayLike, blocks: int | None) -> Domain:
    """Return the image with the values of inputs that are not kept."""
    if isinstance(region, Domain):
        return region
    sides = None if blocks is None else blocks_of(blocks, network.input_shape)
    if not isinstance(region, Ball):
        image = network.flatten(region)[0][0]
        region = Ball.of_data_box(image, network.input_lo, network.input_hi)
    return Domain(region, blocks=sides)


def blocks_of(side: int, *shapes: tuple[int, ...]) -> PixelBlocks:
    """Divide an image into blocks; of several shapes, the first one of an image counts."""
    size = math.prod(shapes[0])
    if type(side) is not int or not 1 <= side < 2**31:
        raise InputError(f"blocks is {side}; expected a whole number of pixels, at least 1")
    for shape in shapes:
        layout = image_layout(shape)
        if layout is not None and math.prod(layout) == size:
            return PixelBlocks(side, layout)
    raise InputError(
        f"inputs of shape {shapes[0]} are not an image, which has height and width or a square "
        "number of inputs; without --blocks each input counts on its own"
    )


def _refuse_other_class(problem: Problem) -> None:
    """Raise if the image does not have the label, in exact arithmetic."""
    replayer, centre = Replayer(problem), problem.region.center
    values = replayer.value(problem.targets, centre) or [0.0] * len(problem.targets)
    for target, value in zip(problem.targets, values, strict=True):
        found = replayer.confirm(target, centre) if value <= 0 else None
        if found is None:
            continue
        label, rival = problem.label, target.rival
        if found.value == 0:
            raise InputError(
                f"the image has no class to explain: classes {label} and {rival} have equal scores"
            )
        raise InputError(
            f"the image does not have class {label}: the network gives it class {found.predicted}"
        )
    # All inputs suffice only if the class of the image itself is certain.
    lasts = [pattern[-1] for pattern in problem.network.exact_patterns(centre)]
    certain = all(target.is_violated(x) is False for target in problem.targets for x in lasts)
    if not certain or not 0 < len(lasts) < MOST_TIE_CHOICES:
        raise InputError(
            "the image has no class to explain: its scores or signs are not known exactly enough"
        )
