"""Measurement of a job, ready to be kept: the figures, their subject, and their caveats."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.packages import package_version
from privmix.reports.records import RunRecord, last_name, write_record
from privmix.shown import Shown

# Packages whose versions can change figures.
_PACKAGES: Final = ("privmix", "dp-accounting", "numpy", "scipy", "scikit-learn", "torch")


@dataclass(frozen=True)
class Measurement:
    """One measurement with everything that a reader needs to judge it; :func:`privmix.report` makes pages of them."""

    # `kind`: see `privmix.reports.records.KINDS`. `private`: computed from private rows other than through a
    # private release or model. `statements`: sentences that must stand next to the figures.
    kind: str
    subject: Mapping[str, Any]
    content: Mapping[str, Any]
    private: bool
    settings: Mapping[str, Any]
    title: str
    statements: Sequence[str] = ()

    def record(self, command: str = "") -> RunRecord:
        return RunRecord(
            self.kind,
            dict(self.subject),
            self.private,
            dict(self.content),
            dict(self.settings),
            title=self.title,
            command=command,
            statements=list(self.statements),
            versions={name: found for name in _PACKAGES if (found := package_version(name)) != "unknown"},
        )

    def keep(self, run: str | Path, command: str = "") -> Path:
        """Write the record into the run folder `run`; private ones are readable by their owner only."""
        # Imported here: it takes the readers of data, and help of a command that measures does not.
        from privmix.jobs.places import check_unpublished

        check_unpublished("record", Path(run))
        return write_record(self.record(command), Path(run))


@dataclass(frozen=True, repr=False)
class Measured(Shown):
    """Result of a job, with its :class:`Measurement`."""

    measurement: Measurement

    def shown(self) -> tuple[str, Mapping[str, object]]:
        content = self.measurement.content
        plain = {name: value for name, value in content.items() if isinstance(value, str | int | float)}
        return self.measurement.title, {name.replace("_", " "): value for name, value in plain.items()}

    def to_dict(self) -> dict[str, Any]:
        return dict(self.measurement.content)

    def keep(self, run: str | Path, command: str = "") -> Path:
        return self.measurement.keep(run, command)


def place(text: str, *, private: bool) -> str:
    """Return a file, folder or address for a record: no user, password or key, and, if public, no path to it.

    Example:
        >>> place("https://ann:secret@host/x?token=1", private=True), place("/home/ann/REL", private=False)
        ('https://host/x', 'REL')
    """
    if not private:
        return last_name(text)
    from privmix.data.remote import public_name

    return public_name(text) if "://" in text else text


def command_line(arguments: Sequence[str], *, private: bool) -> str:
    """Return the command of these arguments, as text to copy; see :func:`place` for its places."""
    words = ["privmix"]
    for word in arguments:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        words.append(option + equals + place(value, private=private))
    return shlex.join(words)
