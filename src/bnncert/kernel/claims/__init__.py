"""Claims that follow from several ordinary certificates, or from a computation of the checker."""
