"""Models for DP-SGD: none mixes the records of a batch, all are rebuilt from a JSON spec."""
