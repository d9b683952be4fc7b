"""The whole path on data that ships with scikit-learn."""
