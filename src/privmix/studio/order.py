"""One order from what was asked: what is run, and the same as a command and as Python."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from privmix.commands.spec import TableSpec, spec
from privmix.errors import InvalidInput
from privmix.jobs.columns import Columns
from privmix.jobs.released import Release
from privmix.jobs.releasing import release
from privmix.progress import Progress, silent
from privmix.studio.asked import (
    AUTO,
    HOLDS,
    IMAGES,
    PERSON,
    TABLE,
    TEXTS,
    Asked,
    number,
    whole,
)

_FLAGS: Final = {item.name: item.metadata["flag"] for item in fields(Columns) if "flag" in item.metadata}
_FEATURES: Final = {IMAGES: "pixels", TEXTS: "minilm"}


@dataclass(frozen=True)
class Order:
    """A release, ready to be made. It is said once: what runs and what the page shows are made of the same words.

    Attributes:
        data: where the private data are.
        columns: fields of :class:`privmix.Columns` that are declared.
        spec: arguments of :func:`privmix.spec` beside these, for a table.
        release: arguments of :func:`privmix.release` beside these.
    """

    data: str
    columns: Mapping[str, Any]
    release: Mapping[str, Any]
    spec: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: Asked) -> Order:
        """The order that was asked for, once :func:`privmix.studio.asked.problems_of` finds nothing.

        Raises:
            InvalidInput: a number is none.
        """
        declared: dict[str, Any] = {}
        if asked.what != IMAGES:
            declared["label"] = asked.label
        if asked.what == TEXTS:
            declared["text_column"] = asked.text_column
        if asked.what == IMAGES:
            declared |= {"image_size": whole(asked, "image_size", 4, 512), "colour": asked.colour}
        if asked.unit == PERSON:
            declared["person"] = asked.person
        made = {"out": f"{asked.out}.columns.json"}
        found: dict[str, Any] = {
            "features": f"tabular:{made['out']}" if asked.what == TABLE else _FEATURES[asked.what],
            "classes": asked.classes,
            "records": whole(asked, "records", 2),
            "design": asked.design,
            "epsilon": number(asked, "epsilon"),
            "delta": number(asked, "delta"),
        }
        if asked.design == AUTO:
            found["attainable"] = number(asked, "attainable") / 100
        if asked.ledger:
            found |= {"ledger": f"sqlite:///{asked.ledger}", "dataset": asked.dataset}
        found["out"] = asked.out
        return cls(asked.data, declared, found, {**made, **_said(asked)} if asked.what == TABLE else {})

    @property
    def _shared(self) -> dict[str, Any]:
        """What a specification needs, too."""
        return {name: value for name, value in self.columns.items() if name in ("label", "person")}

    def command(self, *, resume: bool = False) -> str:
        """The same on the command line: a line a command, to be run in the studio's folder."""
        lines = []
        if self.spec:
            lines.append(["privmix", "spec", self.data, *_flags({**self._shared, **self.spec, "overwrite": True})])
        given = {"data": self.data, **self.columns, **self.release, **({"resume": True} if resume else {})}
        lines.append(["privmix", "release", *_flags(given)])
        return "\n".join(shlex.join(line) for line in lines)

    def python(self) -> str:
        """The same in Python."""
        calls = {"release = pm.release(": {**self.columns, **self.release}}
        if self.spec:
            calls = {"pm.spec(": {**self._shared, **self.spec, "overwrite": True}, **calls}
        lines = ["import privmix as pm", ""]
        for call, said in calls.items():
            lines += [call, f"    {self.data!r},", *(f"    {name}={value!r}," for name, value in said.items()), ")"]
        return "\n".join(lines)

    def carry_out(self, progress: Progress = silent, *, resume: bool = False) -> tuple[Release, tuple[str, ...]]:
        """Make the release; this reads the private data. And what its owner should know of it.

        Raises:
            PrivmixError: as :func:`privmix.release`; or a column of the data was not declared.
        """
        if self.spec:
            _check_declared(spec(self.data, overwrite=True, progress=False, **self._shared, **self.spec))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", UserWarning)
            made = release(self.data, progress=progress, resume=resume, **self.columns, **self.release)
        # Others than this call are not meant: what they say of is their own.
        told = (one for one in said if one.category is UserWarning and one.filename == __file__)
        return made, tuple(str(one.message) for one in told)


def _said(asked: Asked) -> dict[str, Any]:
    """What is said of columns, as `spec` takes it."""
    found: dict[str, Any] = {}
    for column in asked.declared:
        if column.holds in HOLDS:
            found.setdefault(column.holds, []).append(column.said)
    empty = [f"{column.name}=" for column in asked.declared if column.empty and column.holds != "ignore"]
    return {**found, **({"missing": empty} if empty else {})}


def _check_declared(made: TableSpec) -> None:
    if made.undeclared:
        names = ", ".join(made.undeclared)
        raise InvalidInput("columns", f"nothing said of {names}", "what each column of the header holds, or not used")


def _flags(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments as options of the command line, which have the same names."""
    found = []
    for name, value in arguments.items():
        for one in value if isinstance(value, list) else [value]:
            flag, text = f"--{_FLAGS.get(name, name.replace('_', '-'))}", str(one)
            # What begins with a hyphen would be read as an option.
            found += [flag] if one is True else [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return found
