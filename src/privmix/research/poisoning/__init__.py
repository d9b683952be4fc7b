"""Poisoning: attacks by some training records against mixing, noise, filters and guarantees, in paired trials."""
