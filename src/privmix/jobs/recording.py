"""What a job measured, ready to be kept: the figures, what they are about, and what must stand beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from privmix.packages import package_version
from privmix.reports.places import last_name
from privmix.reports.records import RunRecord, write_record
from privmix.shown import Shown

_PACKAGES: Final = ("privmix", "dp-accounting", "numpy", "scipy", "scikit-learn", "torch")


@dataclass(frozen=True)
class Measurement:
    """One measurement and everything that a reader needs to judge it; :func:`privmix.report` makes pages of them.

    Attributes:
        kind: see :data:`privmix.reports.records.KINDS`.
        subject: what it is about: ``{"kind": ..., "id": ...}``.
        content: figures, JSON values.
        private: whether any of them was computed from private rows other than through a private release or model.
        settings: what decided them, JSON values.
        title: a line for people.
        statements: sentences that must stand beside the figures.
    """

    kind: str
    subject: Mapping[str, Any]
    content: Mapping[str, Any]
    private: bool
    settings: Mapping[str, Any]
    title: str
    statements: Sequence[str] = ()

    def record(self, command: str = "") -> RunRecord:
        """The run record; ``command`` makes it again."""
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
        """Write the record into the run folder ``run``; private ones are readable by their owner only.

        Raises:
            InvalidInput: the folder is in a release or a model, which are handed to others.
            StorageError: it can't be written.
        """
        # Imported here: it takes the readers of data, and help of a command that measures does not.
        from privmix.jobs.places import check_unpublished

        check_unpublished("record", Path(run))
        return write_record(self.record(command), Path(run))


@dataclass(frozen=True, repr=False)
class Measured(Shown):
    """What a job found, with its :class:`Measurement`."""

    measurement: Measurement

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """The figures that are a word or a number each."""
        content = self.measurement.content
        plain = {name: value for name, value in content.items() if isinstance(value, str | int | float)}
        return self.measurement.title, {name.replace("_", " "): value for name, value in plain.items()}

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return dict(self.measurement.content)

    def keep(self, run: str | Path, command: str = "") -> Path:
        """:meth:`Measurement.keep`."""
        return self.measurement.keep(run, command)


def place(text: str, *, private: bool) -> str:
    """A file, folder or address as a record names it: no user, password or key, and, for the public, no way to it.

    Example:
        >>> place("https://ann:secret@host/x?token=1", private=True), place("/home/ann/REL", private=False)
        ('https://host/x', 'REL')
    """
    if not private:
        return last_name(text)
    from privmix.data.remote import public_name

    return public_name(text) if "://" in text else text
