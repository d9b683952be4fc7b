"""``python -m privmix``: the command line, where its script is not on the path."""

from privmix.cli.main import main

if __name__ == "__main__":
    main()
