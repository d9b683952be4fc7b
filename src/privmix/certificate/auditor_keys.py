"""Keys that a run's key is sealed to: X25519 in PEM files, of auditors who may replay a release.

Sealing is hybrid public key encryption as RFC 9180 has it: X25519, HKDF-SHA256, ChaCha20-Poly1305, base mode. Whoever
knows the public key can seal, so that a sealed key says nothing of who sealed it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privmix.certificate.keys import (
    key_id_of,
    public_pem,
    read_private_pem,
    read_public_pem,
    write_private_pem,
)
from privmix.errors import WITHHELD, InvalidInput

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_PUBLIC_WORDS: Final = "the public key that privmix keygen --auditor wrote (X25519, PEM)"
_PRIVATE_WORDS: Final = "the private key that privmix keygen --auditor wrote (X25519, PEM)"


class AuditorPublicKey:
    """A key that seals. What is sealed to it, the auditor alone can open."""

    def __init__(self, key: X25519PublicKey) -> None:
        self._key = key

    @property
    def key_id(self) -> str:
        """SHA-256 of the key in DER form, as of keys that sign."""
        return key_id_of(self._key)

    def to_pem(self) -> bytes:
        """As a PEM file."""
        return public_pem(self._key)

    def seal(self, content: bytes, bound: bytes) -> bytes:
        """``content`` for the auditor, who opens it with the same ``bound`` and no other; new bytes every time."""
        return bytes(_SUITE.encrypt(content, self._key, bound))

    @classmethod
    def read(cls, path: Path) -> AuditorPublicKey:
        """The key in a PEM file.

        Raises:
            StorageError: it is missing or can't be read.
            InvalidInput: it holds no public X25519 key.
        """
        return cls(read_public_pem(path, X25519PublicKey, _PUBLIC_WORDS))


class AuditorKey:
    """A key that opens what was sealed to its public half. Whoever has it can take noise off: for its owner alone.

    Formal guarantees:
        * what was sealed to another key, was changed, or is bound to something else does not open.

    Example:
        >>> key = AuditorKey.new()
        >>> key.open(key.public.seal(b"content", b"release 1"), b"release 1")
        b'content'
        >>> key.open(key.public.seal(b"content", b"release 1"), b"release 2")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        privmix.errors.InvalidInput: sealed key: got a value that is private and not shown; allowed: what was sealed...
    """

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"AuditorKey(key_id={self.public.key_id})"

    @property
    def public(self) -> AuditorPublicKey:
        """The half that others seal with."""
        return AuditorPublicKey(self._key.public_key())

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """What was sealed.

        Raises:
            InvalidInput: it was sealed to another key, or was changed, or ``bound`` is other.
        """
        try:
            return bytes(_SUITE.decrypt(sealed, self._key, bound))
        except (InvalidTag, ValueError):
            allowed = "what was sealed to this key for this release, unchanged"
            raise InvalidInput("sealed key", WITHHELD, allowed) from None

    @classmethod
    def new(cls) -> AuditorKey:
        """A fresh key, from the operating system's randomness."""
        return cls(X25519PrivateKey.generate())

    def write(self, path: Path, passphrase: bytes | None = None) -> None:
        """Store the key in a new file for its owner alone; see :meth:`privmix.certificate.keys.PrivateKey.write`."""
        write_private_pem(path, self._key, passphrase)

    @classmethod
    def read(cls, path: Path, passphrase: bytes | None = None) -> AuditorKey:
        """The key in a PEM file.

        Raises:
            StorageError: it is missing or can't be read.
            InvalidInput: it is no private X25519 key, others may read it, or the passphrase is missing or another.
        """
        return cls(read_private_pem(path, passphrase, X25519PrivateKey, _PRIVATE_WORDS))
