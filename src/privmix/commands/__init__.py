"""Commands: each a frozen dataclass of options with what it does. Importing one takes no time."""
