"""Options: fields of frozen dataclasses, each with one text that help, docstrings and documents show.

Such dataclasses may hold one another, as a tree. A leaf of it has one flat name, by which the command line, Python and
errors know it:

    @described
    @dataclass(frozen=True)
    class Update:
        rate: Positive = option(0.1, "Learning rate.")
        decay: Fraction = option(0.9, "Of the average.", name="ema")

    @dataclass(frozen=True)
    class Training:
        epochs: Count = option(1, "Passes.")
        warm_up: Update = group(Update, "Before.", prefix="warm_up_")

    made(Training(), {"epochs": 3, "warm_up_ema": 0.5})

What a leaf may hold is in its type (:mod:`privmix.fields`); what has no text is no option.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from privmix.errors import InvalidInput, check_choice, in_terms_of

Kind = TypeVar("Kind", bound=type[Any])
Made = TypeVar("Made")
EXPERT: Final = "Expert"
"""The panel of options that few people need."""
_GROUP: Final = "group"
_VARIANTS: Final = "variants"


def said(text: str, panel: str | None = None, **more: Any) -> dict[str, Any]:
    """Metadata of a field.

    Args:
        text: what the option is; other fields stand between backticks.
        panel: under which all of help shows it; without one it stands on the first screen of help, too.
        more: ``common`` (stands on that screen whatever its panel), ``argument`` (given by its place on the command
            line), ``several`` (given once or more there; how one looks), ``needed`` (must be given there), ``python``
            (for Python alone), ``flag`` and ``off``, as :mod:`privmix.cli.verb` reads them; ``where_used`` and
            ``stored``, as :mod:`privmix.fields` does; and of leaves of a tree: ``name``, its flat name, where it is not
            the field's; ``unset``, where it is left to the model or preset unless it is given, and the text says what
            that is; ``read``, what makes the field's value of what is given, and ``kind``, what that is, if no text;
            ``nested``, where it has no flat name and is said in its own config alone.
    """
    return {"help": text, **({"panel": panel} if panel else {}), **more}


def option(default: Any, text: str, panel: str | None = None, **more: Any) -> Any:
    """A field of a dataclass that says what it is; see :func:`said`. MISSING: it must be given."""
    return field(default=default, metadata=said(text, panel, **more))


def group(kind: type[Any], text: str, panel: str | None = None, *, prefix: str = "", **more: Any) -> Any:
    """A field that holds a config of its own.

    Args:
        kind: the config.
        text: what it is.
        panel: of its leaves that name none.
        prefix: of their flat names.
        more: ``word``: what is named by default, where a text in place of the config is a name of one, which
            ``kind.named`` finds; ``factory``: of the config, if not ``kind``.
    """
    factory = more.pop("factory", kind)
    return field(default_factory=factory, metadata={**said(text, panel, **more), _GROUP: prefix})


def variants(
    text: str, *, by: str, called: str, options: Callable[[], Mapping[str, type[Any]]], several: str = "", **more: Any
) -> Any:
    """A field for the options that belong to one variant of several; None where the variant has none.

    Args:
        text: what they are.
        by: the field that names the variant.
        called: a variant, as help calls it.
        options: gives the dataclass of a variant's options by its name, where it has some; in files that import little.
        several: what stands between the names of several variants; the field is then a tuple, with the options of each.
        more: as of :func:`said`.
    """
    words = {**said(text, **more), _VARIANTS: options, "by": by, "called": called, "several": several}
    return field(default=() if several else None, metadata=words)


def in_order(kind: type[Any]) -> list[Field[Any]]:
    """The options of a dataclass: its own, then those of the dataclasses that it inherits, in their order.

    Example:
        >>> from privmix.jobs.columns import Columns
        >>> [item.name for item in in_order(Columns)][:2]
        ['columns', 'text_column']
    """
    known = {item.name: item for item in fields(kind) if item.init}
    names = dict.fromkeys(name for base in kind.__mro__ for name in inspect.get_annotations(base) if name in known)
    return [known[name] for name in names]


def options_for(kinds: Sequence[type[Any]], held: Sequence[Any]) -> tuple[Any, ...]:
    """For each dataclass the object of it that is held, or one by default."""
    return tuple(next((one for one in held if type(one) is kind), None) or kind() for kind in kinds)


@dataclass(frozen=True)
class Leaf:
    """An option of a tree.

    Attributes:
        name: flat.
        path: names of the fields that lead to it.
        item: its field.
        hint: what is given, as a type.
        panel: under which help shows it.
        default: what help says that it is where nothing is given; None: its text says it.
        of: names of the variants that it belongs to; empty: it is no variant's own.
        word: it names the whole group.
    """

    name: str
    path: tuple[str, ...]
    item: Field[Any]
    hint: Any
    panel: str | None
    default: Any = None
    of: tuple[str, ...] = ()
    word: bool = False

    def value(self, given: Any) -> Any:
        """What the field holds where this is given."""
        read = self.item.metadata.get("read")
        if read is not None:
            with in_terms_of({self.item.name: self.name}):
                return read(given)
        kind = next((one for one in _members(self.hint) if isinstance(one, type) and issubclass(one, Enum)), None)
        if kind is not None and not isinstance(given, kind):
            return kind(check_choice(self.name, given, [one.value for one in kind]))
        return given


def leaves(kind: Any) -> tuple[Leaf, ...]:
    """The options of a tree, in the order of its fields.

    Example:
        >>> from privmix.training import OptimiserConfig
        >>> [leaf.name for leaf in leaves(OptimiserConfig)]
        ['optimiser', 'learning_rate', 'momentum', 'schedule', 'ema']
    """
    return _all_leaves(kind)


@cache
def _all_leaves(kind: Any) -> tuple[Leaf, ...]:
    found = list(_leaves(kind, (), "", None))
    taken = {leaf.name for leaf in found if not leaf.of}
    # A mechanism from elsewhere may call its option as another is called already.
    return tuple(
        replace(leaf, name=f"{leaf.of[0]}_{leaf.name}".replace("-", "_")) if leaf.of and leaf.name in taken else leaf
        for leaf in found
    )


def _leaves(kind: type[Any], path: tuple[str, ...], prefix: str, panel: str | None) -> Iterable[Leaf]:
    hints = get_type_hints(kind, include_extras=True)
    for item in fields(kind):
        words, place = item.metadata, (*path, item.name)
        shown = words.get("panel", panel)
        if _VARIANTS in words:
            yield from _own_leaves(item, place)
        elif _GROUP in words:
            if "word" in words:
                yield Leaf(prefix + item.name, place, item, str, shown, words["word"], word=True)
            yield from _leaves(hints[item.name], place, prefix + words[_GROUP], shown)
        elif "help" in words and not words.get("nested"):
            yield _leaf(item, hints[item.name], place, prefix, shown)


def _leaf(item: Field[Any], hint: Any, path: tuple[str, ...], prefix: str, panel: str | None) -> Leaf:
    words = item.metadata
    kind = words.get("kind", str) if "read" in words else _plain(hint)
    default = None if words.get("unset") or item.default is MISSING else item.default
    # What is read from a word is shown as one.
    default = words.get("shown", default)
    return Leaf(prefix + words.get("name", item.name), path, item, kind, panel, default)


def _own_leaves(item: Field[Any], path: tuple[str, ...]) -> Iterable[Leaf]:
    """Options of variants; one that several have alike is one option."""
    found: dict[tuple[str, Any], list[tuple[str, Leaf]]] = {}
    for name, kind in item.metadata[_VARIANTS]().items():
        for leaf in _leaves(kind, path, "", None):
            found.setdefault((leaf.name, leaf.hint), []).append((name, leaf))
    called = item.metadata["called"]
    for owners in found.values():
        names = tuple(name for name, _ in owners)
        panel = f"{called}{'s' * (len(names) > 1)}: {' and '.join(names)}"
        # What is not given is not said of a variant that is not meant.
        yield replace(owners[0][1], of=names, panel=panel, default=None)


def _plain(hint: Any) -> Any:
    """The type without what is annotated: ``float | None``."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        found, *others = [_plain(one) for one in get_args(hint)]
        return reduce(or_, others, found)
    return hint


def _members(hint: Any) -> Sequence[Any]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def groups(kind: Any) -> Mapping[str, tuple[tuple[str, ...], Any]]:
    """Name of each config within a tree, and of what variants have: path and type."""
    return _all_groups(kind)


@cache
def _all_groups(kind: Any) -> Mapping[str, tuple[tuple[str, ...], Any]]:
    found: dict[str, tuple[tuple[str, ...], Any]] = {}

    def look(inner: type[Any], path: tuple[str, ...]) -> None:
        hints = get_type_hints(inner)
        for item in fields(inner):
            if _GROUP in item.metadata:
                found[item.name] = ((*path, item.name), hints[item.name])
                look(hints[item.name], (*path, item.name))
            elif _VARIANTS in item.metadata:
                found[item.name] = ((*path, item.name), None)

    look(kind, ())
    return found


def names_of(kind: type[Any]) -> dict[str, str]:
    """Field -> flat name, for errors of what a tree's configs are for: fields whose options are called otherwise."""
    flat = {leaf.name for leaf in leaves(kind)} | set(groups(kind))
    found: dict[str, str] = {}
    for leaf in leaves(kind):
        own = leaf.path[-1]
        # A name of the whole group is a name of many other things.
        if own not in flat and own != leaf.name and leaf.name not in groups(kind):
            found.setdefault(own, leaf.name)
    return found


def made(base: Made, given: Mapping[str, Any], fields_given: Mapping[str, Any] | None = None) -> Made:
    """A config with what is given in place of what it holds; whatever is wrong is named by its flat name.

    Args:
        base: the config.
        given: options by flat names, and configs within it by their fields' names; what is None is not given.
        fields_given: other fields of the config itself.

    Raises:
        InvalidInput: a value is not allowed, does not go with others, or would not be used.

    Example:
        >>> from privmix.training import OptimiserConfig
        >>> made(OptimiserConfig(), {"ema": 0.5}).ema_decay
        0.5
        >>> made(OptimiserConfig(), {"ema": 1})
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: ema: got 1; allowed: a finite number >= 0 and < 1
    """
    said = {name: value for name, value in given.items() if value is not None}
    found: Made = _Making(type(base), said).of(base, (), dict(fields_given or {}))
    _refuse_unused(found, said)
    return found


class _Making:
    """Makes the configs of a tree, from the inside out."""

    def __init__(self, kind: type[Any], given: Mapping[str, Any]) -> None:
        self._given = given
        self._leaves = leaves(kind)
        self._at = {leaf.path: leaf for leaf in self._leaves if not leaf.word and not leaf.of}

    def of(self, base: Any, path: tuple[str, ...], changes: dict[str, Any]) -> Any:
        """``base``, which is at the end of ``path``, with ``changes`` and what is given."""
        hints = get_type_hints(type(base))
        for item in fields(base):
            place, leaf = (*path, item.name), self._at.get((*path, item.name))
            if _GROUP in item.metadata:
                changes[item.name] = self._group(item, hints[item.name], getattr(base, item.name), place)
            elif leaf is not None and leaf.name in self._given and not is_dataclass(self._given[leaf.name]):
                changes[item.name] = leaf.value(self._given[leaf.name])
        for item in fields(base):
            if _VARIANTS in item.metadata:
                changes[item.name] = self._own(item, {**vars(base), **changes}, (*path, item.name))
        names = {own[-1]: leaf.name for own, leaf in self._at.items() if own[:-1] == path}
        with in_terms_of({own: flat for own, flat in names.items() if own != flat}):
            return replace(base, **changes)

    def _group(self, item: Field[Any], kind: type[Any], held: Any, path: tuple[str, ...]) -> Any:
        given = self._given.get(item.name)
        whole = isinstance(given, kind)
        within = [leaf for leaf in self._leaves if leaf.path[: len(path)] == path and leaf.name in self._given]
        if whole:
            if others := [leaf.name for leaf in within if leaf.name != item.name]:
                both = ", ".join([item.name, *others])
                raise InvalidInput(both, "a config and options of it", "the one or the others")
            return given
        if given is not None and not any(leaf.name == item.name for leaf in within):
            raise InvalidInput(item.name, given, f"a {kind.__name__}")
        if "word" in item.metadata and given is not None:
            held = kind.named(given)
        return self.of(held, path, {})

    def _own(self, item: Field[Any], values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
        """The options of the variant that is named, or of each."""
        if item.name in self._given:
            return self._given[item.name]
        named, several = values[item.metadata["by"]], item.metadata["several"]
        names = named.split(several) if several and isinstance(named, str) else [named]
        own = [leaf for leaf in self._leaves if leaf.of and leaf.path[: len(path)] == path and leaf.name in self._given]
        for leaf in own:
            if not set(names) & set(leaf.of):
                by = next(one.name for one in self._leaves if one.path == (*path[:-1], item.metadata["by"]))
                owners = " or ".join(f"`{by}` {name}" for name in leaf.of)
                raise InvalidInput(leaf.name, self._given[leaf.name], f"none with `{by}` {named}; it is of {owners}")
        known = item.metadata[_VARIANTS]()
        found = []
        for name in names:
            kind = known.get(name) if isinstance(name, str) else None
            if kind is not None:
                mine = [leaf for leaf in own if name in leaf.of]
                held = values[item.name] if several else (values[item.name],)
                with in_terms_of({leaf.path[-1]: leaf.name for leaf in self._leaves if name in leaf.of}):
                    changes = {leaf.path[-1]: leaf.value(self._given[leaf.name]) for leaf in mine}
                    found.append(replace(options_for([kind], held)[0], **changes))
        return tuple(found) if several else next(iter(found), None)


def _refuse_unused(root: Any, given: Mapping[str, Any]) -> None:
    """Raise where what is given would change nothing: a config's ``unused`` says of which of its fields, and why."""
    for leaf in leaves(type(root)):
        if leaf.name not in given or (leaf.default is not None and given[leaf.name] == leaf.default):
            continue
        holder = root
        # Of what belongs to a variant, that this is named is seen to.
        for place in leaf.path[:-1] if leaf.of else leaf.path:
            why = holder.unused().get(place) if hasattr(holder, "unused") else None
            if why is not None:
                raise InvalidInput(leaf.name, given[leaf.name], why)
            holder = getattr(holder, place)


def with_leaves(kind: type[Any], *, after: str, but: Sequence[str] = ()) -> Callable[[Kind], Kind]:
    """A class decorator, below ``dataclass``: the leaves of a tree become fields, and the configs in it fields, too.

    Each is None where it is not given; ``made`` takes them.

    Args:
        kind: the tree.
        after: the field after which they come.
        but: flat names that are left out.
    """

    def add(owner: Kind) -> Kind:
        hints: dict[str, Any] = {}
        for name, hint in inspect.get_annotations(owner).items():
            hints[name] = hint
            if name == after:
                for added, words, kind_of_value in _added(kind):
                    if added not in but:
                        setattr(owner, added, field(default=None, metadata=words))
                        hints[added] = kind_of_value
        owner.__annotations__ = hints
        return owner

    return add


def _added(kind: type[Any]) -> Iterable[tuple[str, Mapping[str, Any], Any]]:
    """Name, metadata and type of the fields for a tree."""
    names = {leaf.name for leaf in leaves(kind)}
    for leaf in leaves(kind):
        words = dict(leaf.item.metadata)
        text = words["help"] if leaf.default is not None else with_default(words["help"], leaf.item.default)
        yield leaf.name, {**words, "help": text, "panel": leaf.panel, "shown": leaf.default}, leaf.hint
    for name, (_, hint) in groups(kind).items():
        if name not in names:
            what = "an object" if hint is None else f"a {hint.__name__}"
            yield name, {"help": f"In place of single options: {what}.", "python": True}, Any


def given_in(kind: type[Any], options: Any) -> dict[str, Any]:
    """What an object that has the fields of :func:`with_leaves` says of a tree, by flat names."""
    names = [*(leaf.name for leaf in leaves(kind)), *groups(kind)]
    return {name: value for name in names if (value := getattr(options, name, None)) is not None}


def described(kind: Kind) -> Kind:
    """A class decorator: the docstring of a dataclass lists its fields, each by its own text or else its type.

    Example:
        >>> from dataclasses import dataclass
        >>> @described
        ... @dataclass(frozen=True)
        ... class Draw:
        ...     '''How records are drawn.'''
        ...
        ...     share: float = option(0.1, "Share of all records.")
        >>> print(Draw.__doc__)
        How records are drawn.
        <BLANKLINE>
        Attributes:
            share: Share of all records. Default: 0.1.
    """
    if kind.__doc__ is None:
        # Python was told to keep no docstrings.
        return kind
    listed = "\n".join(["Attributes:", *(f"    {item.name}: {_of(item)}" for item in fields(kind) if item.init)])
    head, *rest = re.split(r"\n\n(?=(?:Raises|Example):\n)", inspect.cleandoc(kind.__doc__), maxsplit=1)
    if "\n\nAttributes:\n" in head:
        # Of the class; those of its objects come after them.
        head, own = head.split("\n\nAttributes:\n")
        listed = f"Attributes:\n{own}{listed.removeprefix('Attributes:')}"
    kind.__doc__ = "\n\n".join([head, listed, *rest])
    return kind


def _of(item: Any) -> str:
    text = item.metadata.get("help")
    if text is None:
        return f":class:`{item.type}`." if isinstance(item.type, str) else f":class:`{item.type.__name__}`."
    return with_default(text, item.metadata.get("shown", item.default))


def with_default(text: str, default: Any) -> str:
    """The text and the default, where the text does not tell it."""
    tells = "Default" in text or "default" in text
    plain = isinstance(default, bool | int | float | str) and default is not False and default != ""
    return f"{text} Default: {default}." if plain and not tells else text
