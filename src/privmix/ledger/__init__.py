"""The budget of each private dataset: reserve before reading, commit when done, refuse what would exceed it."""
