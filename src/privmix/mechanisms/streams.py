"""Secret random streams: one per purpose and index, all derived from one key that is never released.

Draws depend on (key, purpose, indices) alone, never on who asks, in what order or how often, so a retry re-creates
the same randomness in place of adding a second sample of it.

What this protects against, and what it does not:

* Without the key, telling the streams' bits from uniform ones means breaking AES-128 in counter mode or keyed
  BLAKE2b. An ordinary generator (PCG64, Mersenne Twister) gives no such protection: its state can be solved for from
  outputs, and with the state all noise can be subtracted.
* Each stream has a 128-bit key, derived from a 256-bit master key. Guarantees are therefore against bounded
  adversaries: differential privacy is computational here, as with every pseudo-random generator.
* The bits are uniform; what is computed from them (exponentials, normals) is so only to float64 precision. See
  :mod:`privmix.mechanisms.noise` for what that means.
* A key that is kept in a file while a run lasts (:meth:`SecretStreams.save`) is as safe as that file.
* Not covered: an adversary on the same machine who reads the process's memory, swap or a core dump, or who measures
  time, caches or power. ``destroy`` overwrites the master key, yet copies that the interpreter or the operating system
  made, and generators that were already handed out, may survive it.
* Streams are reproducible with one version of NumPy and randomgen; NumPy may change its samplers between versions.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
from randomgen import AESCounter

from privmix import private_files
from privmix.errors import WITHHELD, InvalidInput, check_integer
from privmix.held_folders import NO_LINK
from privmix.mechanisms.aes import Lent
from privmix.private_files import open_private

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
          its name: :meth:`save` writes it to a file of the owner's, :meth:`share` hands out a derived key,
          :meth:`entrust` lends it to what seals it.
        * Sealed: without the key, no code of :meth:`seal` can be made for any content.
        * One way: a derived key tells nothing about its parent's streams, nor about those of its siblings.
        * One run: a second :meth:`claim` raises, so no two runs share their noise.
        * Gone is gone: after :meth:`destroy` the key's bytes, and those of keys derived from it here, are zero and no
          further generator can be made.

    Example:
        >>> streams = SecretStreams.from_seed(0)
        >>> first = streams.generator("noise", 3, 1).random()
        >>> first == streams.generator("noise", 3, 1).random()
        True
        >>> first == streams.generator("noise", 1, 3).random()
        False
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
    def from_entropy(cls) -> SecretStreams:
        """Streams under a fresh key from the operating system's cryptographic random source."""
        return cls(bytearray(os.urandom(_KEY_BYTES)), insecure_seed=False)

    @classmethod
    def from_seed(cls, seed: int) -> SecretStreams:
        """Streams that anyone who guesses ``seed`` can re-create: for tests and benchmarks only.

        Args:
            seed: an integer from 0 to 2**64 - 1.

        Raises:
            InvalidInput: ``seed`` is not such an integer.
        """
        encoded = _encode_index("seed", seed)
        key = hashlib.blake2b(encoded, digest_size=_KEY_BYTES, person=b"privmix-seed").digest()
        return cls(bytearray(key), insecure_seed=True)

    @classmethod
    def load(cls, path: str | Path, *, dir_fd: int | None = None) -> SecretStreams:
        """Streams under the key that :meth:`save` wrote to ``path``.

        A key that others know is no secret: the file must be the owner's alone, and be no link.

        Raises:
            InvalidInput: the file holds no key, or one that was overwritten; or others than its owner can reach it.
            OSError: it can't be read.
        """
        content = bytearray(_FILE_BYTES + 1)
        with open_private(path, _KEY_FILE, buffered=False, dir_fd=dir_fd) as file:
            length = file.readinto(content)  # type: ignore[attr-defined]
        key = content[1:_FILE_BYTES]
        # A key of zeros is what destroying leaves: noise under it would be everyone's.
        if length != _FILE_BYTES or content[0] not in (0, 1) or not any(key):
            raise InvalidInput(_KEY_FILE, WITHHELD, "a key as privmix wrote it")
        return cls(key, insecure_seed=bool(content[0]))

    @classmethod
    def of_shared(cls, key: bytes) -> SecretStreams:
        """Streams under a derived key that :meth:`share` handed out, as a worker needs them."""
        streams = cls(bytearray(key), insecure_seed=False)
        streams._derived = True
        return streams

    def save(self, path: str | Path, *, dir_fd: int | None = None) -> None:
        """Write the key to the new file ``path``, readable by its owner only, and wait until the disk has it.

        Whoever reads that file can subtract the noise: it must not outlive the run. See :func:`shred`.

        Raises:
            RuntimeError: the key was destroyed, or is a derived one.
            OSError: the file exists or can't be written.
        """
        if self._key is None or self._derived:
            raise RuntimeError("only a live master key is kept in a file")
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_LINK, 0o600, dir_fd=dir_fd)
        try:
            os.write(descriptor, bytes([self._insecure_seed]) + self._key)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def entrust(self, seal: Callable[[bytes], bytes]) -> bytes:
        """What ``seal`` makes of the master key, which :meth:`of_entrusted` takes; it must keep no copy.

        Whoever can open that can take off all the noise.

        Raises:
            RuntimeError: the key was destroyed, or is a derived one.

        Example:
            >>> streams = SecretStreams.from_seed(0)
            >>> again = SecretStreams.of_entrusted(bytearray(streams.entrust(bytes)))
            >>> again.generator("noise").random() == streams.generator("noise").random(), again.insecure_seed
            (True, True)
        """
        if self._key is None or self._derived:
            raise RuntimeError("only a live master key is sealed")
        return seal(bytes([self._insecure_seed]) + self._key)

    @classmethod
    def of_entrusted(cls, content: bytearray) -> SecretStreams:
        """Streams under a key that :meth:`entrust` lent; ``content`` is overwritten.

        Raises:
            InvalidInput: it is no such key.
        """
        if len(content) != _FILE_BYTES or content[0] not in (0, 1) or not any(content[1:]):
            raise InvalidInput(_KEY_FILE, WITHHELD, "a key as privmix sealed it")
        key, insecure = content[1:], bool(content[0])
        content[:] = bytes(len(content))
        return cls(key, insecure_seed=insecure)

    def derive(self, purpose: str) -> SecretStreams:
        """Return child streams under a key of their own: BLAKE2b of ``purpose``, keyed with this key.

        The way back from the child's key to this one, or to another child's, means breaking BLAKE2b.

        Example:
            >>> streams = SecretStreams.from_seed(0)
            >>> child = streams.derive("membership")
            >>> SecretStreams.of_shared(child.share()).generator("a").random() == child.generator("a").random()
            True
            >>> child.generator("a").random() == streams.generator("a").random()
            False
        """
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
        """The key of derived streams, to be handed to a worker that must draw from them.

        Whoever has the key of the membership streams knows which records are in which rows: with it the guarantee
        that sampling amplifies is lost, and what is left is that of noise alone. It does not give the noise away.
        Hand it to machines that hold the private records anyway, and to nobody else.

        Raises:
            RuntimeError: these are not derived streams (a master key is never handed out), or they were destroyed.
        """
        if self._key is None or not self._derived:
            raise RuntimeError("only the key of live derived streams can be shared")
        return bytes(self._key)

    def seal(self, purpose: str, content: bytes) -> str:
        """A code that only who has the key can make: keyed BLAKE2b of ``content``, under a key of its own.

        Example:
            >>> streams = SecretStreams.from_seed(0)
            >>> streams.seal("notes", b"a") == streams.seal("notes", b"a"), len(streams.seal("notes", b"a"))
            (True, 64)
            >>> streams.seal("notes", b"a") == streams.seal("other notes", b"a")
            False
        """
        child = self.derive(purpose)
        key = child.share()
        self._children.remove(child)
        child.destroy()
        return hashlib.blake2b(content, key=key, digest_size=_KEY_BYTES, person=b"privmix-seal").hexdigest()

    @property
    def insecure_seed(self) -> bool:
        """Whether the key came from a seed. A release made under such a key has no privacy and must say so."""
        return self._insecure_seed

    def generator(self, purpose: str, *indices: int) -> np.random.Generator:
        """Return the stream named by ``purpose`` and ``indices``, from its beginning.

        Args:
            purpose: what the stream is for; streams of different purposes are independent.
            indices: integers from 0 to 2**64 - 1, such as a row tile and a record tile.

        Raises:
            InvalidInput: an index is out of range.
            RuntimeError: the key was destroyed.
        """
        return np.random.Generator(AESCounter(key=int.from_bytes(self._key_of(purpose, indices), "little")))

    def lent(self, purpose: str, *indices: int) -> Lent:
        """The stream of that name, as :meth:`generator` returns it, for the time of a ``with`` block and no longer.

        For streams of which few numbers are drawn: making a generator may take longer than that.

        Raises:
            InvalidInput: an index is out of range.
            RuntimeError: the key was destroyed.

        Example:
            >>> streams = SecretStreams.from_seed(0)
            >>> with streams.lent("noise", 3) as generator:
            ...     first = generator.random()
            >>> first == streams.generator("noise", 3).random()
            True
        """
        return Lent(self._key_of(purpose, indices))

    def _key_of(self, purpose: str, indices: tuple[int, ...]) -> bytes:
        if self._key is None:
            raise RuntimeError("these streams were destroyed: their key is gone")
        return hashlib.blake2b(
            _encode_name(purpose, indices), key=self._key, digest_size=16, person=b"privmix-stream"
        ).digest()

    def claim(self) -> None:
        """Reserve these streams for one run; a second claim raises RuntimeError.

        Adding the same noise to two different sums shows their difference without noise.
        """
        if self._claimed:
            raise RuntimeError("these streams have served a run: make new ones for the next")
        self._claimed = True

    @property
    def live(self) -> bool:
        """Whether the key is still there."""
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
    """Overwrite the key file ``path`` with zeros, wait until the disk has them, and remove it; no file, no work.

    A link, or a file that is no key file of this user, is refused and left as it is. For what overwriting can't do see
    :func:`privmix.private_files.shred`.
    """
    private_files.shred(path, _KEY_FILE, _FILE_BYTES, closed=dir_fd is None, dir_fd=dir_fd)


def _encode_name(purpose: str, indices: tuple[int, ...]) -> bytes:
    # Lengths go first, so that no two names run together into the same bytes.
    name = purpose.encode()
    parts = [len(name).to_bytes(_LENGTH_BYTES, "little"), name, len(indices).to_bytes(_LENGTH_BYTES, "little")]
    parts += [_encode_index("stream index", index) for index in indices]
    return b"".join(parts)


def _encode_index(field: str, index: int) -> bytes:
    number = check_integer(field, index, low=0, high=2 ** (8 * _INDEX_BYTES) - 1)
    return number.to_bytes(_INDEX_BYTES, "little")
