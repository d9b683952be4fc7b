"""Defences against poisoned training images, one file each."""
