"""Banded matrix factorisation with cyclic Poisson sampling (Choquette-Choo et al. 2023)."""
