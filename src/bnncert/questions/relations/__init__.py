"""Two copies of one network in a query: monotone features and individual fairness."""
