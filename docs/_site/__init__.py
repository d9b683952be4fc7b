"""What makes the site of docs/: pages from elsewhere, the API, words, reproductions. See docs/conf.py."""
