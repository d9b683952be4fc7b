"""The views of one record: augmentations, mixes and banks, each made of that record, its seed and public data."""
