"""The reduced semidefinite relaxation: tables of the last layer, conflicting pairs, coupling."""
