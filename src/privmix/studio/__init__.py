"""The studio: pages in a browser on this machine alone, for whoever decides about a dataset and uses no terminal."""
