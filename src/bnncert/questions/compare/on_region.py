"""The question whether two networks agree on a region.

1. A difference is searched among given points, random points and points at decision boundaries.
2. Two robustness questions exclude classes that a network cannot give on the region; if only one
   class is left, and the same one, the networks agree.
3. A method decides about the product of both networks and the pairs of classes that are left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bnncert.arrays import FloatArray
from bnncert.deadline import Deadline
from bnncert.engine.methods import Options, Progress
from bnncert.engine.verdict import Result
from bnncert.kernel.rules.product import Product
from bnncert.model.network import Network
from bnncert.problem import Problem, robustness
from bnncert.questions.compare.boundary import BoundarySearch
from bnncert.questions.compare.classes import UNDETERMINED, exact_class
from bnncert.questions.compare.difference import Difference, difference_at, difference_problem
from bnncert.questions.compare.findings import Findings
from bnncert.questions.solving import solve
from bnncert.regions import Region

#: Share of the time for the search of a difference, and its seconds at most; then those for the
#: questions which classes a network cannot give.
SEARCH_SHARE, MOST_SEARCH_SECONDS = 0.2, 10.0
EXCLUSION_SHARE, MOST_EXCLUSION_SECONDS = 0.3, 60.0

#: With more conditions than this for all pairs of classes, i and j are compared with each other
#: only at first.
MOST_CONDITIONS = 400

#: The least time limit of a step.
LEAST_SECONDS = 1e-3


@dataclass(eq=False)
class RegionComparison:
    """One comparison on a region.

    Attributes
    ----------
    findings
        Where the answer is recorded.
    product, region, points
        The networks, the inputs that count, and points to search from.
    method, deadline, options, progress
        Those of `compare_networks`.
    possible
        The classes that each network may give on the region.
    label
        The class of both networks at the centre, if they have one.
    parts
        The parts of a certificate that have been written.
    """

    findings: Findings
    product: Product
    region: Region
    points: FloatArray | None
    method: str
    deadline: Deadline
    options: Options
    progress: Progress | None
    possible: dict[str, frozenset[int]] = field(init=False)
    label: int | None = None
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        every = frozenset(range(self.product.first.classes))
        self.possible = {"A": every, "B": every}

    def run(self) -> None:
        """Search for a difference on the region, then for a proof that there is none."""
        region = self.region
        search = BoundarySearch(self.product, region, self.options.seed)
        left = self.deadline.remaining()
        end = self.deadline.within(min(MOST_SEARCH_SECONDS, SEARCH_SHARE * left))
        found = search.run(self.points, end, self.progress)
        if found is None and search.one_class is not None:
            found = self._exclude(region)
        if found is None and self.findings.known.status == "unknown":
            found = self._product_question(region)
        if found is not None:
            self.findings.different(found, self.product, region)

    def _exclude(self, region: Region) -> Difference | None:
        """Find out which classes each network cannot give; return a difference found meanwhile.

        The networks agree if each can only give the class of the centre.
        """
        center = region.settle(region.center)
        if center is None:
            return None
        label = exact_class(self.product.first, center)
        if label == UNDETERMINED or exact_class(self.product.second, center) != label:
            return difference_at(self.product.first, self.product.second, region, center)
        share = min(MOST_EXCLUSION_SECONDS, EXCLUSION_SHARE * self.deadline.remaining())
        self.label = label
        for name, network in (("A", self.product.first), ("B", self.product.second)):
            # Each network has half of the time.
            end = self.deadline.within(share / 2)
            problem = robustness(network, region, label)
            result = self._solve(problem, network, name, end)
            found = self._at_counterexample(region, result)
            if found is not None:
                return found
            self._excluded(name, problem, result, end)
        if all(len(classes) == 1 for classes in self.possible.values()):
            self.findings.update(status="equal", how="one class")
            if self.parts == ["A", "B"]:
                both, parts = (label, label), ("A", "B")
                self.findings.certify(
                    lambda w: w.write("one class", region=region, classes=both, parts=parts)
                )
        return None

    def _excluded(self, name: str, problem: Problem, result: Result, end: Deadline) -> None:
        """Remember which classes a network cannot give, and the part of a certificate for it."""
        proved = [t.rival for t in result.targets if t.status == "robust"]
        rivals = {rival for rival in proved if rival is not None}
        if not rivals:
            return
        self.possible[name] = self.possible[name] - rivals
        if self.findings.writer is None:
            return
        if result.status != "robust":
            # A certificate states what was proved, and not the rest.
            targets = tuple(t for t in problem.targets if t.rival in rivals)
            result = self._solve(replace(problem, targets=targets), problem.network, name, end)
        if result.status == "robust" and result.certificate is not None:
            self.parts.append(name)

    def _product_question(self, region: Region) -> Difference | None:
        """Decide about the product of both networks."""
        if self.deadline.passed():
            self.findings.update(status="timeout")
            return None
        first, second = self.possible["A"], self.possible["B"]
        count = self.product.first.classes
        pairs = sum(i != j for i in first for j in second)
        all_scores = pairs * (2 * count - 1) <= MOST_CONDITIONS
        while True:
            problem = difference_problem(self.product, region, first, second, all_scores=all_scores)
            result = self._solve(problem, self.product.network, "product", self.deadline)
            self.findings.update(targets=result.targets)
            found = self._at_counterexample(region, result)
            if result.status != "not_robust" or found is not None or all_scores:
                break
            # The scores of i and j are ordered differently, but another class is the best.
            all_scores = True
        if result.status == "robust":
            self.findings.update(status="equal", how="product")
            self._certify_product(region, result, all_scores)
        elif result.status == "not_robust" and found is None:
            self.findings.note("the classes at the input that was found are not determined")
        elif result.status == "timeout":
            self.findings.update(status="timeout")
        return found

    def _certify_product(self, region: Region, result: Result, all_scores: bool) -> None:
        """Write the certificate of a proof about the product."""
        excluded = {
            name: sorted(set(range(self.product.first.classes)) - classes)
            for name, classes in self.possible.items()
        }
        needed = [name for name, classes in excluded.items() if classes]
        if result.certificate is None or self.parts != needed:
            return
        self.findings.certify(
            lambda writer: writer.write(
                "product",
                region=region,
                excluded={"label": self.label, **excluded} if needed else None,
                all_scores=all_scores,
                parts=(*needed, "product"),
            )
        )

    def _solve(self, problem: Problem, network: Network, name: str, end: Deadline) -> Result:
        left = max(end.remaining(), LEAST_SECONDS)
        request = None if self.findings.writer is None else self.findings.writer.part(name, network)
        result = solve(
            [problem],
            self.method,
            None if left == np.inf else left,
            self.options,
            self.progress,
            request=request,
        )
        if result.status == "robust" and request is not None and result.certificate is None:
            self.findings.note(
                result.notes[-1] if result.notes else "no certificate could be written"
            )
        return result

    def _at_counterexample(self, region: Region, result: Result) -> Difference | None:
        """Return the difference at a counterexample, if there is one."""
        found = result.counterexample
        if found is None:
            return None
        return difference_at(
            self.product.first, self.product.second, region, found.point, found.exact
        )
