"""Training mechanisms: who is sampled, what noise is added, what that costs, what is said of it, and its worst case."""
