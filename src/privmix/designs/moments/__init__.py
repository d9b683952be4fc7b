"""Noisy second moments of records."""
