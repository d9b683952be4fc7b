"""Designs that others published, with valid bounds, to compare with: DP-MERF, DP-HP, and Gaussian Mixing."""
