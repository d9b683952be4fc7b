"""Mechanisms: standalone blocks for sampling, clipping, mixing, noise and secret random streams."""
