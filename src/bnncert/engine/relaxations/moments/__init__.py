"""The moment relaxations of the paper, on sparse cliques."""
