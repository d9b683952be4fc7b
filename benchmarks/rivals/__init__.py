"""Rivals of a release, each in one file: pure NumPy, with noise that the package's accountants price."""
