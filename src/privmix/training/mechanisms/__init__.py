"""Training mechanisms: who is sampled, what noise is added, what that costs, its description, and its worst case."""
