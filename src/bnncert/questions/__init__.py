"""The questions that users ask; each is a claim, a strategy and the columns of its answer."""
