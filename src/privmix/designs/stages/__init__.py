"""Second moments in two and three stages."""
