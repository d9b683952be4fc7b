"""Secret random streams: one per purpose and index, all derived from one key that is never released.

Draws depend on (key, purpose, indices) alone, so a retry re-creates the same randomness. Protections:

* Without the key, telling the streams' bits from uniform ones means breaking AES-128 in counter mode or keyed BLAKE2b.
  The state of an ordinary generator (PCG64, Mersenne Twister) can be solved for from outputs, which removes all noise.
* Stream keys have 128 bits, from a 256-bit master key: differential privacy is computational here, as with every
  pseudo-random generator. A key in a file (:meth:`SecretStreams.save`) is as safe as that file.
* Exponentials and normals are exact to float64 precision only: see :mod:`privmix.mechanisms.noise`.
* Not covered: an adversary who reads the process's memory, swap or a core dump, or who measures time, caches or power.
  ``destroy`` overwrites the master key; copies by the interpreter or the system, and generators in use, may survive it.
* Streams are reproducible with one version of NumPy and randomgen; NumPy may change its samplers between versions.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Final, NoReturn

import numpy as np
from randomgen import AESCounter

from privmix import folders
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.folders import NO_LINK, open_private

# randomgen's constructor asks the processor for its features each time, which a virtual machine answers slowly. Here an
# unused cipher gets the next key, whose schedule is worked out in Python. The bits are those of a new ``AESCounter``,
# which is made where randomgen keeps keys in another form.


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


@cache
def _taken_back() -> Any:
    """Return what replaces a generator's cipher: it makes a generator, and its lock stays closed."""
    cipher = AESCounter(key=0)
    return SimpleNamespace(cipher=cipher, capsule=cipher.capsule, lock=_Closed())


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


_KEY_BYTES = 32
_FILE_BYTES = 1 + _KEY_BYTES
_INDEX_BYTES = 8
_LENGTH_BYTES = 4
_KEY_FILE = "key file"


class SecretStreams:
    """Named random streams under one secret master key. Make one with :meth:`from_entropy`.

    Formal guarantees:
        * Same name, same bits: equal key, purpose and indices give generators with equal outputs.
        * Different name, different stream: the map from (purpose, indices) to what is hashed is injective.
        * The key stays inside: it is in no ``repr``, and pickling or copying raises. Three methods let it out, each by
          its name. :meth:`save` writes it to a file of the owner's, :meth:`share` hands out a derived key,
          :meth:`entrust` lends it to what seals it.
        * Sealed: without the key, no code of :meth:`seal` can be made for any content.
        * One way: a derived key reveals nothing about its parent's streams, nor about those of its siblings.
        * One run: a second :meth:`claim` raises, so no two runs share their noise.
        * Gone is gone: after :meth:`destroy` the key's bytes, and those of keys derived from it here, are zero and no
          further generator can be made.
    """

    __slots__ = ("_children", "_claimed", "_derived", "_insecure_seed", "_key")

    def __init__(self, key: bytearray, *, insecure_seed: bool) -> None:
        """Take ownership of ``key`` (32 bytes): it is kept without a copy, and ``destroy`` overwrites it."""
        if len(key) != _KEY_BYTES:
            raise ValueError(f"a master key has {_KEY_BYTES} bytes")
        self._key: bytearray | None = key
        self._insecure_seed = insecure_seed
        self._claimed = False
        self._derived = False
        self._children: list[SecretStreams] = []

    @classmethod
    def from_entropy(cls) -> "SecretStreams":
        """Streams under a fresh key from the operating system's cryptographic random source."""
        return cls(bytearray(os.urandom(_KEY_BYTES)), insecure_seed=False)

    @classmethod
    def from_seed(cls, seed: int) -> "SecretStreams":
        """Streams that anyone who guesses ``seed`` (0 to 2**64 - 1) can re-create: for tests and benchmarks only."""
        encoded = _encode_index("seed", seed)
        key = hashlib.blake2b(encoded, digest_size=_KEY_BYTES, person=b"privmix-seed").digest()
        return cls(bytearray(key), insecure_seed=True)

    @classmethod
    def load(cls, path: str | Path, *, dir_fd: int | None = None) -> "SecretStreams":
        """Streams under the key that :meth:`save` wrote to ``path``, a file of the owner's alone, and no link."""
        content = bytearray(_FILE_BYTES + 1)
        with open_private(path, _KEY_FILE, buffered=False, dir_fd=dir_fd) as file:
            length = file.readinto(content)  # type: ignore[attr-defined]
        key = content[1:_FILE_BYTES]
        # A key of zeros is what destroying leaves: noise under it would be everyone's.
        if length != _FILE_BYTES or content[0] not in (0, 1) or not any(key):
            raise InvalidInput(_KEY_FILE, WITHHELD, "a key as privmix wrote it")
        return cls(key, insecure_seed=bool(content[0]))

    @classmethod
    def of_shared(cls, key: bytes) -> "SecretStreams":
        """Streams under a derived key that :meth:`share` handed out, as a worker needs them."""
        streams = cls(bytearray(key), insecure_seed=False)
        streams._derived = True
        return streams

    def save(self, path: str | Path, *, dir_fd: int | None = None) -> None:
        """Write the key to the new file ``path``, readable by its owner only, and wait until the disk has it."""
        # Anyone who reads that file can subtract the noise: it must not outlive the run. See `shred`.
        if self._key is None or self._derived:
            raise RuntimeError("only a live master key is kept in a file")
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_LINK, 0o600, dir_fd=dir_fd)
        try:
            os.write(descriptor, bytes([self._insecure_seed]) + self._key)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def entrust(self, seal: Callable[[bytes], bytes]) -> bytes:
        """Return what ``seal`` makes of the master key, for :meth:`of_entrusted`; ``seal`` must keep no copy."""
        # Anyone who can open the result can subtract all the noise.
        if self._key is None or self._derived:
            raise RuntimeError("only a live master key is sealed")
        return seal(bytes([self._insecure_seed]) + self._key)

    @classmethod
    def of_entrusted(cls, content: bytearray) -> "SecretStreams":
        """Return streams under a key that :meth:`entrust` lent; ``content`` is overwritten."""
        if len(content) != _FILE_BYTES or content[0] not in (0, 1) or not any(content[1:]):
            raise InvalidInput(_KEY_FILE, WITHHELD, "a key as privmix sealed it")
        key, insecure = content[1:], bool(content[0])
        content[:] = bytes(len(content))
        return cls(key, insecure_seed=insecure)

    def derive(self, purpose: str) -> "SecretStreams":
        """Return child streams under a key of their own: BLAKE2b of ``purpose``, keyed with this key."""
        # The way back from the child's key to this one, or to another child's, means breaking BLAKE2b.
        if self._key is None:
            raise RuntimeError("these streams were destroyed: their key is gone")
        digest = hashlib.blake2b(
            _encode_name(purpose, ()), key=self._key, digest_size=_KEY_BYTES, person=b"privmix-derive"
        ).digest()
        child = SecretStreams(bytearray(digest), insecure_seed=self._insecure_seed)
        child._derived = True
        self._children.append(child)
        return child

    def share(self) -> bytes:
        """Return the key of derived streams, for a worker that must draw from them; a master key raises."""
        # A holder of the membership key knows which records are in which rows: amplification by sampling is lost, the
        # noise is not given away. Hand it only to machines that hold the private records anyway.
        if self._key is None or not self._derived:
            raise RuntimeError("only the key of live derived streams can be shared")
        return bytes(self._key)

    def seal(self, purpose: str, content: bytes) -> str:
        """Return a code that only a key holder can make: keyed BLAKE2b of ``content``, under a key of its own."""
        child = self.derive(purpose)
        key = child.share()
        self._children.remove(child)
        child.destroy()
        return hashlib.blake2b(content, key=key, digest_size=_KEY_BYTES, person=b"privmix-seal").hexdigest()

    @property
    def insecure_seed(self) -> bool:
        """Whether the key came from a seed. A release made under such a key has no privacy and must state so."""
        return self._insecure_seed

    def generator(self, purpose: str, *indices: int) -> np.random.Generator:
        """Return the stream named by ``purpose`` and ``indices`` (0 to 2**64 - 1), from its beginning."""
        return np.random.Generator(AESCounter(key=int.from_bytes(self._key_of(purpose, indices), "little")))

    def lent(self, purpose: str, *indices: int) -> Lent:
        """Return the stream of :meth:`generator` for a ``with`` block: faster where few numbers are drawn."""
        return Lent(self._key_of(purpose, indices))

    def _key_of(self, purpose: str, indices: tuple[int, ...]) -> bytes:
        if self._key is None:
            raise RuntimeError("these streams were destroyed: their key is gone")
        return hashlib.blake2b(
            _encode_name(purpose, indices), key=self._key, digest_size=16, person=b"privmix-stream"
        ).digest()

    def claim(self) -> None:
        """Reserve these streams for one run; a second claim raises RuntimeError."""
        # Adding the same noise to two different sums shows their difference without noise.
        if self._claimed:
            raise RuntimeError("these streams have served a run: make new ones for the next")
        self._claimed = True

    @property
    def live(self) -> bool:
        return self._key is not None

    def destroy(self) -> None:
        """Overwrite the key, and those of its children, with zeros and refuse any later use; again does nothing."""
        for child in self._children:
            child.destroy()
        if self._key is not None:
            self._key[:] = bytes(len(self._key))
            self._key = None

    def __repr__(self) -> str:
        state = "destroyed" if self._key is None else "live"
        return f"<SecretStreams {state}, insecure_seed={self._insecure_seed}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secret streams can be neither pickled nor copied: the key must not leave this object")


def shred(path: str | Path, *, dir_fd: int | None = None) -> None:
    """Overwrite the key file ``path`` with zeros, wait until the disk has them, and remove it; it may be missing."""
    # A link, or a file that is no key file of this user, is refused. Limits: see privmix.folders.shred.
    folders.shred(path, _KEY_FILE, _FILE_BYTES, closed=dir_fd is None, dir_fd=dir_fd)


def _encode_name(purpose: str, indices: tuple[int, ...]) -> bytes:
    # Lengths go first, so that no two names run together into the same bytes.
    name = purpose.encode()
    parts = [len(name).to_bytes(_LENGTH_BYTES, "little"), name, len(indices).to_bytes(_LENGTH_BYTES, "little")]
    parts += [_encode_index("stream index", index) for index in indices]
    return b"".join(parts)


def _encode_index(field: str, index: int) -> bytes:
    number = check_integer(field, index, low=0, high=2 ** (8 * _INDEX_BYTES) - 1)
    return number.to_bytes(_INDEX_BYTES, "little")
