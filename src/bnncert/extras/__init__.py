"""Parts beside verification: training, the scripts of VNN-COMP and the paper's experiments."""
