"""The cost of a design, and its consequences."""
