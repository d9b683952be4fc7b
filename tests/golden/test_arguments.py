"""Python's signatures are those of the dataclasses that own the options."""

from __future__ import annotations

from tests.golden.arguments import FILE, text


def test_type_checkers_read_what_the_options_are() -> None:
    """After a change of options, ``python -m tests.golden.arguments`` writes the file anew."""
    assert FILE.read_text(encoding="utf-8") == text()
