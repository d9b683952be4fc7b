"""Versions of the ledger's tables, in order."""
