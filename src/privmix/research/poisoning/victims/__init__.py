"""Ordinary, non-private training: what poisoning is aimed at."""
