"""What makes the site of docs/: pages from elsewhere, the API, words, figures. See docs/conf.py."""
