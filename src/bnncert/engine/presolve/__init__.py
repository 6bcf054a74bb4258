"""Facts about a problem that are derived before a solver runs."""
