"""Attacks that poison training images, one file each."""
