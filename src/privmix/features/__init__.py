"""Public, per-record feature extractors."""
