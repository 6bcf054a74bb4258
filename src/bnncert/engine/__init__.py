"""How a question about one convex region is decided: presolve, relaxations, searches, methods."""
