"""What Python's long calls take by name and type: type checkers and editors need it as text.

``python -m tests.golden.arguments`` writes it, from the dataclasses that own the options; a test compares.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from privmix import jobs
from privmix.cli.verb import hints_of
from privmix.jobs.canaries import CanaryJob
from privmix.jobs.columns import Columns
from privmix.jobs.membership import MembershipJob
from privmix.jobs.persons import Persons
from privmix.jobs.release_options import ReleaseOptions
from privmix.jobs.training_options import TrainingOptions
from privmix.options import groups, leaves
from privmix.training.config import TrainingConfig

FILE = Path(jobs.__file__).with_name("arguments.py")
HEAD = '''"""What Python's users may say of a release, training or attack, by name and type: for editors and checkers.

They read text alone, so this repeats what the dataclasses say: ``python -m tests.golden.arguments`` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from privmix.features import Extractor
    from privmix.jobs.columns import Columns
    from privmix.plans import Design
    from privmix.training import ExecutionConfig, ExtendedConfig, OptimiserConfig, ViewConfig, WarmUpConfig


class TrainingArguments(TypedDict, total=False):
    """Fields of :class:`privmix.jobs.training_options.TrainingOptions`, which says what each is.

    Those that :func:`privmix.train` names itself are left out, and ``dry_run``, which is a job's.
    """

{training}


class ReleaseArguments(TypedDict, total=False):
    """Fields of :class:`privmix.jobs.release_options.ReleaseOptions`, and of what it holds, which say what each is.

    Those that :func:`privmix.release` names itself are left out; columns are declared as :class:`Columns`, or by name.
    """

{release}


class MembershipArguments(TypedDict, total=False):
    """Fields of :class:`privmix.jobs.membership.MembershipJob` that :func:`privmix.attack` does not name itself."""

{membership}


class CanaryArguments(TypedDict, total=False):
    """Fields of :class:`privmix.jobs.canaries.CanaryJob` that :func:`privmix.audit` does not name itself."""

{canaries}
'''


def _named(function: str, file: str) -> set[str]:
    """The parameters of a function, as written: it can't be imported where this file's text is wrong."""
    tree = ast.parse(FILE.with_name(file).read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    return {one.arg for one in [*found.args.args, *found.args.kwonlyargs]}


def _flat(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Name and type, as written, of the fields of a dataclass and of those within it."""
    written: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        written |= inspect.get_annotations(base)
    hints = hints_of(kind)
    for item in fields(kind):
        if item.name == "columns" and kind is not Columns:
            yield from _flat(Columns)
        elif isinstance(hints[item.name], type) and is_dataclass(hints[item.name]):
            yield from _flat(hints[item.name])
        elif kind is Persons and item.name == "array":
            # A column's name, or these.
            yield "person", "Any"
        elif isinstance(written[item.name], str):
            # These are made paths of.
            place = item.name in ("out", "store", "replay_for") and "str" not in written[item.name]
            wide = written[item.name].replace("Path", "str | Path") if place else ""
            ranged = written[item.name].startswith(("Annotated", "_", "Day"))
            yield item.name, wide or (_plain(hints[item.name]) if ranged else written[item.name])


def _plain(hint: Any) -> str:
    """A type without its range, as written."""
    kinds = [get_args(one)[0] if get_origin(one) is Annotated else one for one in (get_args(hint) or (hint,))]
    return " | ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)


def training() -> dict[str, str]:
    """Name -> type."""
    named = _named("train", "training.py") | {"dry_run"}
    found = {name: kind for name, kind in _flat(TrainingOptions) if name not in named}
    configs = groups(TrainingConfig)
    for leaf in leaves(TrainingConfig):
        kinds = [one for one in (get_args(leaf.hint) or (leaf.hint,)) if one is not type(None)]
        words = ["str" if issubclass(kind, Enum) else kind.__name__ for kind in kinds]
        if leaf.name in configs:
            words.append(configs[leaf.name][1].__name__)
        found[leaf.name] = " | ".join([*words, "None"])
    for name, (_, kind) in configs.items():
        found.setdefault(name, "Any" if kind is None else f"{kind.__name__} | None")
    return {name: kind for name, kind in found.items() if name not in named}


def release() -> dict[str, str]:
    """Name -> type."""
    named = _named("release", "releasing.py") | {"dry_run", "options"}
    found = {name: kind for name, kind in _flat(ReleaseOptions) if name not in named}
    return found


def membership() -> dict[str, str]:
    """Name -> type."""
    named = _named("attack", "attack.py")
    return {name: kind for name, kind in _flat(MembershipJob) if name not in named}


def canaries() -> dict[str, str]:
    """Name -> type."""
    named = _named("audit", "audit.py") | {"overwrite", "resume", "dry_run", "out"}
    # It has to be given to one kind of audit alone.
    return {name: kind for name, kind in _flat(CanaryJob) if name not in named} | {"canaries": "int | None"}


def text() -> str:
    """Of the file."""

    def lines(found: Mapping[str, str]) -> str:
        return "\n".join(f"    {name}: {kind}" for name, kind in found.items())

    made = {one.__name__: lines(one()) for one in (training, release, membership, canaries)}
    return HEAD.format(**made)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
