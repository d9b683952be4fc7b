"""Synthetic images from public ones: a diffusion model, its guidance, metrics, and pools that other commands read."""
