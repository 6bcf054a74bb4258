"""Proofs for the checker, which reads them in :mod:`bnncert.kernel`."""
