"""Membership inference on models: loss, LiRA and RMIA attacks, with reference models made from releases."""
