"""Learners on a release: scikit-learn estimators that see released rows only, so learning costs no privacy."""
