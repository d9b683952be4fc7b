"""Collapse: whether classes survive mixing and noise, on public data (Li et al. 2024, Figures 2 and 14)."""
