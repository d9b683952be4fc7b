"""Clipped sums of per-example gradients: strategies that compute them, what bounds them, and which is chosen when."""
