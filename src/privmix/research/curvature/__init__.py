"""How sharp the minimum is in which a trained model lies (Park et al. 2024, table 4): on public data alone."""
