"""AES-128 in counter mode: one cipher serves many streams, one after the other."""
# randomgen's constructor asks the processor for its features each time, which a virtual machine answers slowly. Here an
# unused cipher gets the next key, whose schedule is worked out in Python. The bits are those of a new ``AESCounter``,
# which is made where randomgen keeps keys in another form.

from __future__ import annotations

from collections import deque
from functools import cache
from types import TracebackType
from typing import Any, Final, NoReturn

import numpy as np
from randomgen import AESCounter

_BYTES: Final = 16
_ROUNDS: Final = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1B, 0x36)
_MASK: Final = 2**128 - 1
_EVERY_WORD: Final = 1 + 2**32 + 2**64 + 2**96
_START: Final = np.array([0, 0, 1, 0, 2, 0, 3, 0], np.uint64)
_IDLE: deque[AESCounter] = deque()


class Lent:
    """The generator of one key, for the time of a ``with`` block: it is not for use afterwards.

    Formal guarantees:
        * Same bits: draws are those of ``np.random.Generator(AESCounter(key=...))``.
        * Alone: no two blocks that are open at the same time have one cipher.
        * Gone is gone: when the block ends, the cipher's key and the bits that it has ready are overwritten.
        * Taken back: from then on the generator draws nothing, neither of another key's bits nor of none. It raises
          RuntimeError for everyone who kept it or one of its methods.
    """

    __slots__ = ("_cipher", "_generator", "_key")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cipher: AESCounter | None = None
        self._generator: np.random.Generator | None = None

    def __enter__(self) -> np.random.Generator:
        if not _same_form():
            self._generator = np.random.Generator(AESCounter(key=int.from_bytes(self._key, "little")))
            return self._generator
        try:
            self._cipher = _IDLE.pop()
        except IndexError:
            self._cipher = AESCounter(key=0)
        self._cipher.state = _state(self._key)
        self._generator = np.random.Generator(self._cipher)
        return self._generator

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cipher, self._cipher, self._key = self._cipher, None, bytes(_BYTES)
        if self._generator is not None:
            self._generator.__init__(_taken_back())  # type: ignore[misc]
            self._generator = None
        if cipher is not None:
            cipher.state = _blank()
            _IDLE.append(cipher)


class _Closed:
    """The lock of a generator whose block is over: each of its methods takes the lock before it draws."""

    def __enter__(self) -> NoReturn:
        raise RuntimeError("a lent generator was used after its block")

    def __exit__(self, *_: object) -> None:
        """Never reached."""


class _TakenBack:
    """Replaces a generator's cipher: an argument to make a generator with, and a lock that stays closed."""

    def __init__(self) -> None:
        self._cipher = AESCounter(key=0)
        self.capsule, self.lock = self._cipher.capsule, _Closed()


@cache
def _taken_back() -> Any:
    return _TakenBack()


def _state(key: bytes) -> dict[str, Any]:
    """State of an ``AESCounter`` of this key before its first draw."""
    schedule = np.frombuffer(_schedule(key), "<u8")
    inner = {"state": bytes(4 * _BYTES), "seed": schedule, "counter": _START, "offset": 4 * _BYTES}
    return {"bit_generator": "AESCounter", "s": inner, "has_uint32": 0, "uinteger": 0}


def _schedule(key: bytes) -> bytes:
    """Return the key and the ten round keys that follow from it (FIPS 197, Section 5.2)."""
    boxes, found, last = _substitutions(), [key], int.from_bytes(key, "little")
    for constant in _ROUNDS:
        turned = (key[13:] + key[12:13]).translate(boxes)
        # Each word is the one before it, plus the same word of the last round key; the first has ``turned`` as well.
        last ^= last << 32
        last = (last ^ last << 64) & _MASK
        last ^= (int.from_bytes(turned, "little") ^ constant) * _EVERY_WORD
        key = last.to_bytes(_BYTES, "little")
        found.append(key)
    return b"".join(found)


@cache
def _substitutions() -> bytes:
    """Return the S-box: inverses in the field of 256 elements, then an affine map (FIPS 197, Section 5.1.1)."""
    powers = [1]  # of 3, which generates all elements but 0
    while len(powers) < 255:
        doubled = powers[-1] << 1
        powers.append(powers[-1] ^ doubled ^ (0x11B if doubled > 0xFF else 0))
    inverses = {0: 0} | {power: powers[-number % 255] for number, power in enumerate(powers)}
    # Two copies side by side: shifting them turns one round.
    twice = [inverses[value] * 0x101 for value in range(256)]
    return bytes((two ^ two >> 4 ^ two >> 5 ^ two >> 6 ^ two >> 7) & 0xFF ^ 0x63 for two in twice)


@cache
def _blank() -> dict[str, Any]:
    return _state(bytes(_BYTES))


@cache
def _same_form() -> bool:
    """Whether this randomgen keeps keys in the known form: a cipher that gets one then draws as a new one does."""
    key = bytes(range(7, 7 + _BYTES))
    fresh, given = AESCounter(key=int.from_bytes(key, "little")), AESCounter(key=0)
    try:
        given.state = _state(key)
    except (KeyError, TypeError, ValueError):
        return False
    return bool((fresh.random_raw(64) == given.random_raw(64)).all())
