"""privmix: publish private datasets as differentially private mixup releases, with accounting that holds."""

__version__ = "0.1.0"
