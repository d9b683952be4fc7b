"""Public data in training: warm-up, and methods with public gradients in private steps (Park et al. 2024)."""
# No part reads private records. Results depend on public data, public seeds and released weights: no privacy cost.
