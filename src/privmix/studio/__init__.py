"""The studio: pages in a local browser. It opens no data, not even a header, which may be a person's record."""
