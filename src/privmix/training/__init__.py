"""DP-SGD: per-example clipped gradients, mixup and augmentation, weight multiplicity, and public data."""
