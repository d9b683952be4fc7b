"""Noisy class embeddings, after DP-MERF and DP-HP."""
