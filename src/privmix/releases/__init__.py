"""Releases: plan -> engine -> released dataset and certificate."""
