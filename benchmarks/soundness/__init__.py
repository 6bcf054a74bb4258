"""Random tests of soundness at a scale that the test suite cannot afford; see ``__main__``."""
