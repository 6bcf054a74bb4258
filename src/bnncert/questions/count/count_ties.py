"""The class of a point at which signs are ambiguous, by enumeration of the choices at ties."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product

import numpy as np

from bnncert.arrays import SignArray
from bnncert.model.layers import TIED, UNDECIDED
from bnncert.model.network import MOST_TIE_CHOICES, Network
from bnncert.problem import Target
from bnncert.questions.count.upper_layers import CHANGED, OPEN, UNCHANGED


class TieBreaking:
    """Decides points of which propagation leaves the class open.

    A point is changed if some choice of the signs at ties changes its class, and unchanged if none
    does.  It stays open if the enclosure of an irrational threshold does not decide a first-layer
    sign, or if there are more than MOST_TIE_CHOICES choices.
    """

    def __init__(self, network: Network, targets: tuple[Target, ...]) -> None:
        self._targets = targets
        self._upper = replace(network, layers=network.layers[1:])

    def __call__(self, first: SignArray) -> int:
        """Return what is known of a point with these first-layer signs."""
        if np.any(first == UNDECIDED):
            return OPEN
        tried, is_certain = 0, True
        for last in islice(self._last_signs(first), MOST_TIE_CHOICES):
            tried += 1
            answers = [target.is_violated(last) for target in self._targets]
            if any(answer is True for answer in answers):
                return CHANGED
            is_certain = is_certain and not any(answer is None for answer in answers)
        return UNCHANGED if is_certain and tried < MOST_TIE_CHOICES else OPEN

    def _last_signs(self, first: SignArray) -> Iterator[SignArray]:
        tied = np.flatnonzero(first == TIED)
        signs = first.copy()
        for choice in product((1, -1), repeat=tied.size):
            signs[tied] = choice
            for pattern in self._upper.exact_patterns(signs):
                yield pattern[-1] if pattern else signs
