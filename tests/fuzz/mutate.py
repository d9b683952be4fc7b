"""Mutations: of bytes, and of JSON values as somebody who knows the format would make them."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

_HOSTILE: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2, 7, 255, 2**31, 2**53, 2**63, 10**30, -(10**18), 0.0, -0.0, 0.5, 1e-5, 1e-300,
    5e-324,
    1e308, -1e308, 1.5, "", "a", "0", "1e-5", "add_remove", "replace_one", "poisson", "moments", "classwise", "laplace",
    "../x", "/etc/passwd", "~", "x" * 5000, "\u202e", "\x00", "<script>", "[red]", "\ud800", "nan", "a\nb", "é", [], {},
    [[]], [None], [0], ["0", "1"], {"": 0}, {"name": "module"}, [1e9, 1e9],
)  # fmt: skip
_BYTES: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x5B, 0x7B, 0x2C, 0x0A)


def mutated_bytes(content: bytes, source: random.Random) -> bytes:
    """A copy with a few bytes changed, removed, doubled or cut off; headers at both ends are hit more often."""
    found = bytearray(content)
    for _ in range(source.choice((1, 1, 1, 2, 4, 16))):
        if not found:
            break
        reach = source.choice((16, 64, len(found)))
        place = source.randrange(min(reach, len(found)))
        place = source.choice((place, len(found) - 1 - place))
        match source.randrange(7):
            case 0:
                found[place] = source.randrange(256)
            case 1:
                found[place] = source.choice(_BYTES)
            case 2:
                found[place] ^= 1 << source.randrange(8)
            case 3:
                del found[place : place + source.choice((1, 4, 100))]
            case 4:
                length = source.choice((1, 4, 100))
                found[place:place] = found[place : place + length]
            case 5:
                found[place:place] = source.randbytes(source.choice((1, 4, 100)))
            case _:
                found[place : place + 4] = source.choice((b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0"))
    if source.random() < 0.1:
        del found[source.randrange(len(found) + 1) :]
    return bytes(found)


def mutated_json(value: Any, source: random.Random) -> Any:
    """A copy with one to three values changed, removed, added, doubled or swapped."""
    root = [copy.deepcopy(value)]
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        holder, key = source.choice(list(_places(root)))
        match source.randrange(8):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(source.choice(_HOSTILE))
            case 3 | 4:
                holder[key] = _nudged(holder[key], source)
            case 5 if holder is not root:
                del holder[key]
            case 6:
                other, place = source.choice(list(_places(root)))
                holder[key] = copy.deepcopy(other[place])
            case _:
                _grow(holder[key], source)
    return root[0]


def mutated_text(content: bytes, source: random.Random, seal: Callable[[Any], None] | None = None) -> bytes:
    """A JSON file mutated as bytes or as values; ``seal`` then makes the hashes that go with the values."""
    if source.random() < 0.2:
        return mutated_bytes(content, source)
    value = mutated_json(json.loads(content), source)
    if seal is not None and isinstance(value, dict) and source.random() < 0.9:
        seal(value)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _nudged(value: Any, source: random.Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + source.choice((-1, 1, value, -2 * value, 10**6))
        case float():
            return value * source.choice((0.5, 0.999999, 1.000001, 2.0, -1.0, 1e6, 1e-6))
        case str():
            return value + source.choice(("x", "\n", " ", "/", "\x00"))
        case list():
            return source.choice((value + value[-1:], value[1:], value[::-1], [value], value * 50))
        case dict():
            return {**value, "more": 1}
    return value


def _grow(value: Any, source: random.Random) -> None:
    extra = copy.deepcopy(source.choice(_HOSTILE))
    if isinstance(value, dict):
        value[source.choice(("extra", "name", "", "version", "path"))] = extra
    elif isinstance(value, list):
        value.insert(source.randrange(len(value) + 1), extra)
