"""The options that a change of the code's shape must not change; see :mod:`tests.golden.help`."""

from tests.golden.help import FOLDER, file_of, options_of, verbs


def test_options_of_every_command() -> None:
    found = {file_of(words): options_of(command) for words, command in verbs().items()}
    assert sorted(found) == sorted(file.name for file in FOLDER.glob("*.txt"))
    for name, text in found.items():
        # Lines: what differs is then shown.
        assert text.splitlines() == (FOLDER / name).read_text(encoding="utf-8").splitlines(), name
