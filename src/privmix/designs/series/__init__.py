"""Second moments of data that grow."""
