"""One order from what was asked: what is run, and the same as a command and as Python."""

import json
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from privmix.commands.release import release
from privmix.commands.spec import spec
from privmix.errors import Caution, InvalidInput
from privmix.jobs.columns import Columns
from privmix.jobs.release_folder import Release
from privmix.progress import Progress, silent
from privmix.studio.asked import AUTO, HOLDS, IMAGES, PERSON, TABLE, TEXTS, FormData, number, shares_asked, whole

_FLAGS: Final[dict[str, str]] = {
    item.name: item.metadata["flag"] for item in fields(Columns) if "flag" in item.metadata
}
_FEATURES: Final = {IMAGES: "pixels", TEXTS: "minilm"}


@dataclass(frozen=True)
class Order:
    """A release, ready to run; the run and the page use the same arguments."""

    # columns: fields of privmix.Columns; spec, release: arguments of pm.spec (tables) and pm.release next to these.

    data: str
    columns: Mapping[str, Any]
    release: Mapping[str, Any]
    spec: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: FormData) -> "Order":
        """Make the order from a form without problems; raise InvalidInput for a number that is none."""
        declared: dict[str, Any] = {}
        if asked.what != IMAGES:
            declared["label"] = asked.label
        if asked.what == TEXTS:
            declared["columns"] = asked.text_column
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
            expected = f"{number(asked, 'attainable') / 100:g}"
            shares = "|".join(f"{one:g}" for one in shares_asked(asked))
            found["assume"] = f"class_shares={shares},auc={expected}" if shares else f"attainable={expected}"
        if asked.ledger:
            found |= {"ledger": f"sqlite:///{asked.ledger}", "dataset": asked.dataset}
        found["out"] = asked.out
        return cls(asked.data, declared, found, {**made, **_said(asked)} if asked.what == TABLE else {})

    @property
    def _shared(self) -> dict[str, Any]:
        return {name: value for name, value in self.columns.items() if name in ("label", "person")}

    def command(self, *, resume: bool = False) -> str:
        """Return the same on the command line: a line a command, to be run in the studio's folder."""
        lines = []
        if self.spec:
            lines.append(["privmix", "spec", self.data, *_flags({**self._shared, **self.spec, "overwrite": True})])
        given = {"data": self.data, **self.columns, **self.release, **({"resume": True} if resume else {})}
        lines.append(["privmix", "release", *_flags(given)])
        return "\n".join(shlex.join(line) for line in lines)

    def toml(self) -> str:
        """Options of the release as a file for ``privmix release --config FILE``."""
        given = {"data": self.data, **self.columns, **self.release}
        # JSON's texts, numbers and truth values are TOML's.
        return "\n".join(f"{_flag(name)} = {json.dumps(value, ensure_ascii=False)}" for name, value in given.items())

    def python(self) -> str:
        calls = {"release = pm.release(": {**self.columns, **self.release}}
        if self.spec:
            calls = {"pm.spec(": {**self._shared, **self.spec, "overwrite": True}, **calls}
        lines = ["import privmix as pm", ""]
        for call, said in calls.items():
            lines += [call, f"    {self.data!r},", *(f"    {name}={value!r}," for name, value in said.items()), ")"]
        return "\n".join(lines)

    def carry_out(self, progress: Progress = silent, *, resume: bool = False) -> tuple[Release, tuple[str, ...]]:
        """Make the release, which reads the private data, and return notes for the owner."""
        if self.spec:
            # Written first: the release names this file as its features.
            table = spec(self.data, overwrite=True, progress=False, **self._shared, **self.spec)
            if table.undeclared:
                given = f"no declaration of {', '.join(table.undeclared)}"
                raise InvalidInput("columns", given, "a declaration for each column of the header, or unused")
        # The worker's output is discarded: cautions reach the owner by the page.
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", Caution)
            made = release(self.data, progress=progress, resume=resume, **self.columns, **self.release)
        return made, tuple(str(one.message) for one in said if one.category is Caution)


def _said(asked: FormData) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column in asked.declared:
        if column.holds in HOLDS:
            found.setdefault(column.holds, []).append(column.said)
    empty = [f"{column.name}=" for column in asked.declared if column.empty and column.holds != "ignore"]
    return {**found, **({"missing": empty} if empty else {})}


def _flag(name: str) -> str:
    return _FLAGS.get(name, name.replace("_", "-"))


def _flags(arguments: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in arguments.items():
        for one in value if isinstance(value, list) else [value]:
            flag, text = f"--{_flag(name)}", str(one)
            # A value that begins with a hyphen would be read as an option.
            found += [flag] if one is True else [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return found
