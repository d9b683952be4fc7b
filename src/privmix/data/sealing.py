"""Private bytes encrypted on the disk, under a key that its owner keeps elsewhere: in a file, or in the environment.

Whoever has the key has the records: encryption protects a disk, a backup or a shared file system from those who do not
have it, and nothing against those who do.
"""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from privmix.data.files import reading
from privmix.errors import WITHHELD, InvalidInput
from privmix.private_files import open_private

KEY_VARIABLE: Final = "PRIVMIX_STORE_KEY"
"""Of the environment: the key where no file is named, 64 hexadecimal digits."""

ENVIRONMENT: Final = "env"
"""In place of a file's name: the key is in the environment."""

_KEY_BYTES: Final = 32
_NONCE: Final = 12
_TAG: Final = 16
_MARK: Final = 16
_ALLOWED: Final = "64 hexadecimal digits, a key of 256 bits: `openssl rand -hex 32` makes one"


@dataclass(frozen=True)
class StoreKey:
    """Where the key to a feature store is; the key itself is read where it is needed, and never travels.

    Attributes:
        place: a file of its owner alone (mode 0600) with 64 hexadecimal digits; ``"env"``: they are in the variable
            ``PRIVMIX_STORE_KEY``.

    Example:
        >>> StoreKey("env")
        StoreKey(place='env')
    """

    place: str

    @classmethod
    def of(cls, place: str | Path | None) -> Self | None:
        """As somebody named it; None: none is asked for.

        The text ``"env"`` alone means the environment. A file of that name is ``"./env"``, and a ``Path`` is a file.

        Example:
            >>> StoreKey.of("env"), Path(StoreKey.of("./env").place).name, Path(StoreKey.of(Path("env")).place).name
            (StoreKey(place='env'), 'env', 'env')
        """
        if place is None:
            return None
        in_environment = isinstance(place, str) and place == ENVIRONMENT
        return cls(ENVIRONMENT if in_environment else str(Path(place).absolute()))

    def read(self) -> bytes:
        """The 32 bytes of the key.

        Raises:
            InvalidInput: it is no such key, or its file is open to others.
            StorageError: there is none.
        """
        if self.place == ENVIRONMENT:
            text = os.environ.get(KEY_VARIABLE, "")
        else:
            path = Path(self.place)
            with reading(path, "a key"), open_private(path, "store_key") as stream:
                text = stream.read(4096).decode("ascii", "replace")
        try:
            key = bytes.fromhex(text.strip())
        except ValueError:
            key = b""
        if len(key) != _KEY_BYTES:
            if self.place == ENVIRONMENT:
                raise InvalidInput(KEY_VARIABLE, WITHHELD, f"{_ALLOWED}; a key in a file that is called env is ./env")
            raise InvalidInput("store_key", WITHHELD, _ALLOWED)
        return key

    def mark(self, facts: bytes) -> bytes:
        """16 bytes that tell a store of these facts from others: to whoever has no key, random numbers."""
        return hmac.digest(self.read(), b"privmix feature store mark 1\n" + facts, "sha256")[:_MARK]

    def sealer(self, mark: bytes) -> Sealer:
        """Who seals and opens what is in the store of that mark."""
        return Sealer(self.read(), mark)


class Sealer:
    """Encrypts pieces of one store, each under a name of its own; AES-256-GCM with a random nonce a piece.

    Formal guarantees:
        * Secret: without the key nothing of a piece shows but its length.
        * Whole: a piece that was changed, or is another one's or another store's, does not open.
        * Each store has a key of its own, made from the owner's and its mark; nonces are random, 96 bits, and stay
          unlike each other for the 2^32 pieces that one key is good for.

    Args:
        key: the owner's, 32 bytes.
        salt: what marks the store, 16 bytes.

    Example:
        >>> sealer = Sealer(bytes(32), bytes(16))
        >>> sealer.opened(b"a", sealer.seal(b"a", b"rows")), sealer.opened(b"b", sealer.seal(b"a", b"rows"))
        (b'rows', None)
    """

    MORE: ClassVar[int] = _NONCE + _TAG
    """Bytes that a sealed piece has beside its own."""

    def __init__(self, key: bytes, salt: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        own = HKDF(SHA256(), _KEY_BYTES, salt, b"privmix feature store 1").derive(key)
        self._cipher: Any = AESGCM(own)

    def __repr__(self) -> str:
        return "<Sealer>"

    def seal(self, name: bytes, content: bytes) -> bytes:
        """The piece called ``name``, encrypted."""
        nonce = secrets.token_bytes(_NONCE)
        sealed: bytes = self._cipher.encrypt(nonce, content, name)
        return nonce + sealed

    def opened(self, name: bytes, sealed: bytes) -> bytes | None:
        """What was sealed; None where it is not what was sealed under this name by this key."""
        from cryptography.exceptions import InvalidTag

        try:
            content: bytes = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], name)
        except (InvalidTag, ValueError):
            return None
        return content
