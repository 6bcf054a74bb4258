"""Check of a certificate against a model.

A file is an ordinary certificate, a statement with its proof, or a composite one: a *claim* and
the ordinary certificates from which it follows.
"""

from __future__ import annotations

from itertools import chain

from bnncert.kernel.budget import running
from bnncert.kernel.claims.claim import Subject
from bnncert.kernel.claims.kinds import check_claim
from bnncert.kernel.container import (
    AnyPath,
    Budget,
    RejectedError,
    Section,
    WatchedSections,
    read_sections,
)
from bnncert.kernel.proof import PartReader
from bnncert.kernel.statement import Report, Zero
from bnncert.model.network import Network


def check(
    path: AnyPath,
    network: Network,
    *,
    other: Network | None = None,
    sign_zero: Zero | None = None,
    timeout: float | None = None,
) -> Report:
    """Check a certificate; raise RejectedError or UnreadableError if it is not accepted.

    Parameters
    ----------
    path
        The file of the certificate.
    network
        The network that it should be about.
    other
        The second network of a certificate about two.
    sign_zero
        The value of sign(0) for which the certificate is to hold ("plus", "minus" or "either");
        without it the network's own.
    timeout
        Seconds after which the certificate is rejected.

    Returns
    -------
    Report
        What an accepted certificate states, in words, and the size and time of the check.

    Raises
    ------
    RejectedError
        If the file does not prove its statement about this network.
    UnreadableError
        If the file is not a certificate.

    Examples
    --------
    >>> import os, tempfile, bnncert
    >>> from bnncert.kernel import check
    >>> net = bnncert.Network.from_arrays([[[1, 1], [1, -1]], [[1, 1], [-1, -1]]], [[0, 0]] * 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "proof.bnncert")
    ...     ball = bnncert.Ball("linf", [0.5, 0], 0.2)
    ...     result = bnncert.verify(net, ball, label=0, timeout=60, certificate=file)
    ...     report = check(file, net)
    >>> report.verdict, report.targets
    ('robust', 1)
    """
    network = network.with_sign_zero(sign_zero)
    if other is not None:
        other = other.with_sign_zero(sign_zero)
    budget = Budget(timeout)
    watched = WatchedSections(budget.timed(read_sections(path, budget)))
    sections = iter(watched)
    try:
        with running(budget):
            first = next(sections, Section("end"))
            if first.name == "claim":
                report = check_claim(first, PartReader(sections), Subject(network, other))
            else:
                parts = PartReader(chain([first], sections))
                statement = parts.take(network)
                parts.finish()
                report = statement.report(network, parts.clauses, parts.leaves, budget.seconds)
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        # The file is rejected if its content causes any of these errors.
        raise RejectedError(f"it is too large or inconsistent ({type(error).__name__})") from error
    watched.refuse_unread()
    return report
