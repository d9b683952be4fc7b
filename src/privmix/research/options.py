"""Options that the commands of several studies share; importing this takes no time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from privmix.jobs.columns import Columns


@dataclass(frozen=True)
class ImageColumns(Columns):
    """Declaration of data that can only be images."""

    feature_length: int | None = field(default=None, init=False)
    csv: str | Mapping[str, Any] | None = field(default=None, init=False)
    person: str | Sequence[str] | None = field(default=None, init=False)


def values_of(kind: type[Any], held: Any) -> dict[str, Any]:
    """Values that an object holds of the fields of a dataclass, by name."""
    return {item.name: getattr(held, item.name) for item in fields(kind) if item.init}
