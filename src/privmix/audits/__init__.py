"""Audits that every design answers: its worst case, its noise, and how far one record moves the released values."""
