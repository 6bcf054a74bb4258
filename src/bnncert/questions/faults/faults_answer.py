"""What is known about the faults that a network tolerates."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from bnncert.engine.answer import Answer, Columns
from bnncert.engine.verdict import Counterexample
from bnncert.kernel.rules.fault_questions import FaultProof, FaultScope
from bnncert.kernel.rules.weight_flips import Fault
from bnncert.model.network import Network


@dataclass(frozen=True)
class FaultBit:
    """A fault with its values: a weight before and after its flip, or a neuron's stuck sign."""

    #: The layer, from 1, or "output".
    layer: int | str
    #: The neuron of the layer and the input of the weight, from 0; a threshold has no input.
    neuron: int
    input: int | None
    #: The weight without and with the fault; for a threshold, the signs of the neuron.
    old: float
    new: float

    @staticmethod
    def of(network: Network, fault: Fault) -> FaultBit:
        """Add the weight that a fault changes, and count layers as users do."""
        name = layer_name(network, fault.layer)
        if fault.input is None:
            return FaultBit(name, fault.neuron, None, -fault.sign, fault.sign)
        if fault.layer == network.depth:
            weight = float(network.output.weights[fault.neuron, fault.input])
        else:
            rows = network.layers[fault.layer].rows
            row = slice(rows.indptr[fault.neuron], rows.indptr[fault.neuron + 1])
            weight = float(rows.data[row][rows.indices[row] == fault.input][0])
        return FaultBit(name, fault.neuron, fault.input, weight, -weight)

    def __str__(self) -> str:
        where = "output" if self.layer == "output" else f"layer {self.layer}"
        if self.input is None:
            return f"{where}, neuron {self.neuron}: threshold stuck, sign {self.new:+g}"
        place = "score" if self.layer == "output" else "neuron"
        return f"{where}, {place} {self.neuron}, input {self.input}: {self.old:g} -> {self.new:g}"


def layer_name(network: Network, number: int) -> int | str:
    """Return a layer as users count: from 1, or "output"."""
    return "output" if number == network.depth else number + 1


@dataclass(frozen=True, eq=False)
class FaultRow:
    """The answer for one scope."""

    #: Which faults count.
    scope: FaultScope
    #: The layer of the scope, from 1, or "output"; None for faults anywhere.
    layer: int | str | None
    #: The number of faults that the scope has room for.
    limit: int
    #: No set of so many faults changes the class; None if the class may differ without a fault.
    certified: int | None = None
    #: How `certified` was proved.
    proof: FaultProof | None = None
    #: The faults that change the class, as the kernel and as users count.
    faults: tuple[Fault, ...] = ()
    bits: tuple[FaultBit, ...] = ()
    #: The input at which they do, replayed on the network with these faults; None if no faults that
    #: change the class are known.
    counterexample: Counterexample | None = None

    @property
    def falsified(self) -> int | None:
        """The number of faults in `bits`, which change the class; None if none are known."""
        return None if self.counterexample is None else len(self.faults)

    @property
    def is_exact(self) -> bool:
        """Whether certified and falsified meet, or all faults together are tolerated."""
        below = -1 if self.certified is None else self.certified
        return self.falsified == below + 1 or self.certified == self.limit

    @property
    def name(self) -> str:
        """The scope in words."""
        where = "output" if self.layer == "output" else f"layer {self.layer}"
        if self.scope.place == "anywhere":
            return "anywhere"
        if self.scope.place == "layer":
            return where
        return f"one score of the {where}" if self.layer == "output" else f"one neuron of {where}"

    @property
    def texts(self) -> tuple[str, str, str]:
        """The numbers certified and falsified, and whether they meet, as a table shows them."""
        sure, false = ("-" if n is None else str(n) for n in (self.certified, self.falsified))
        if self.certified == self.limit:
            sure = f"all {self.limit}"
        return sure, false, "exact" if self.is_exact else "open"

    def claimed(self) -> dict[str, Any]:
        """State the row as the checker reads it."""
        faults = [[f.layer, f.neuron, f.input, f.sign] for f in self.faults]
        return {
            "kind": self.scope.kind,
            "place": self.scope.place,
            "layer": self.scope.layer,
            "certified": self.certified,
            "proof": self.proof,
            "faults": None if self.counterexample is None else faults,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        found = self.counterexample
        return {
            "faults": self.scope.kind,
            "scope": self.scope.place,
            "layer": self.layer,
            "name": self.name,
            "certified": self.certified,
            "falsified": self.falsified,
            "exact": self.is_exact,
            "limit": self.limit,
            "bits": [asdict(bit) for bit in self.bits],
            "counterexample": found and found.to_dict(),
            "proof": self.proof,
        }


@dataclass(frozen=True, eq=False, repr=False)
class FaultsResult(Answer):
    """How many faults of each scope are tolerated at the inputs of a region.

    ``print`` and notebooks show one row for each scope.

    Attributes
    ----------
    label
        The class that the inputs keep.
    region, region_data
        The inputs in words, and as plain data.
    rows
        The answers, one for each scope.
    seconds, certificate, no_certificate
        Those of :class:`Answer`.
    """

    HOLDS = frozenset({"exact"})

    label: int
    region: str
    region_data: dict[str, Any]
    rows: tuple[FaultRow, ...]
    seconds: float
    certificate: str | None = None
    no_certificate: str = ""

    @property
    def status(self) -> Literal["exact", "falsified", "open"]:
        """Whether both sides of every scope meet; "falsified" if no fault is needed."""
        if any(row.falsified == 0 for row in self.rows):
            return "falsified"
        return "exact" if all(row.is_exact for row in self.rows) else "open"

    @property
    def evidence(self) -> tuple[tuple[FaultBit, ...], ...]:
        """For each scope the faults that change the class."""
        return tuple(row.bits for row in self.rows)

    @property
    def summary(self) -> str:
        """How many scopes are decided."""
        exact = sum(row.is_exact for row in self.rows)
        return f"class {self.label}: faults in {len(self.rows)} scopes, {exact} exact"

    def columns(self) -> Columns:
        """Show a scope in a row: which faults, where, and both sides."""
        heads = ["faults", "where", "certified", "falsified", ""]
        rows = [[row.scope.kind, row.name, *row.texts] for row in self.rows]
        return Columns(heads, rows, left=2)

    def row(self, kind: str, place: str, layer: int | str | None = None) -> FaultRow:
        """Return the row of a scope, such as ``row("weights", "layer", 1)``."""
        for row in self.rows:
            if (row.scope.kind, row.scope.place, row.layer) == (kind, place, layer):
                return row
        raise KeyError(f"no row for {kind}, {place}, {layer}")

    def facts(self) -> dict[str, Any]:
        """Give the region as data and in words, and all rows with their bits."""
        return {
            "label": self.label,
            "region": self.region_data,
            "region_text": self.region,
            "rows": [row.to_dict() for row in self.rows],
        }
