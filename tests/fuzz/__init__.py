"""Mutated files of every kind that privmix opens: data, releases, models, records, runs."""
