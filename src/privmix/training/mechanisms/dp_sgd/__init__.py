"""DP-SGD (Abadi et al. 2016): Poisson batches, and independent Gaussian noise in each step."""
