"""The command line: flags, help and printing of the commands."""
