"""Rows that are noisy sums of records."""
