"""Releases made again by an auditor's key, and the end of that."""
