"""Many questions: plans, workers here and on a cluster, and the results file."""
