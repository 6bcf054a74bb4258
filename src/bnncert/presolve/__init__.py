"""What can be said about a problem before any solver runs."""
