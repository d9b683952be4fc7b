"""What makes the site of docs/: pages from elsewhere in the repository, the API, words, reproductions. See docs/conf.py."""
