"""What a design costs, and what follows from such a price."""
