"""Rows of all records with normal weights."""
