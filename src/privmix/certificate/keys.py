"""Keys in PEM files, the private ones for their owners alone; and those that sign: Ed25519."""

from __future__ import annotations

import hashlib
import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privmix.errors import InvalidInput, PrivmixError, StorageError
from privmix.untrusted import open_plain, read_plain

# Keys of any kind are shorter.
_MOST_BYTES: Final = 2**16
_PUBLIC_MARK: Final = b"-----BEGIN PUBLIC KEY-----"
_PRIVATE_MARKS: Final = (b"-----BEGIN PRIVATE KEY-----", b"-----BEGIN ENCRYPTED PRIVATE KEY-----")


class PublicPem:
    """The public half of a key, in a PEM file. Publish it where others can find it without its owner."""

    kind: ClassVar[Any]
    words: ClassVar[str]

    def __init__(self, key: Any) -> None:
        self._key = key

    @property
    def key_id(self) -> str:
        """SHA-256 of the key in DER form, as by ``openssl pkey -pubin -in KEY -outform DER | sha256sum``."""
        content = self._key.public_bytes(pem.Encoding.DER, pem.PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(content).hexdigest()

    def to_pem(self) -> bytes:
        return bytes(self._key.public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo))

    @classmethod
    def read(cls, path: Path) -> Self:
        content = read_plain(path, "key", _MOST_BYTES)
        # This check comes before the format: the user is about to hand on a private key and must be warned.
        if any(mark in content for mark in _PRIVATE_MARKS):
            raise InvalidInput("key", path.name, f"{cls.words}; this is a private one: keep it to yourself")
        try:
            key = pem.load_pem_public_key(content) if content.lstrip().startswith(_PUBLIC_MARK) else None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, cls.kind):
            raise InvalidInput("key", path.name, cls.words)
        return cls(key)


class PrivatePem(ABC):
    """A key with both halves, in a PEM file for its owner alone."""

    kind: ClassVar[Any]
    words: ClassVar[str]

    def __init__(self, key: Any) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"{type(self).__name__}(key_id={self.public.key_id})"

    @property
    @abstractmethod
    def public(self) -> PublicPem:
        """The half that others get."""

    @classmethod
    def new(cls) -> Self:
        """Return a fresh key, from the operating system's randomness."""
        return cls(cls.kind.generate())

    def write(self, path: Path, passphrase: bytes | None = None) -> None:
        """Store the key in a new file for its owner alone, encrypted where a passphrase is given.

        Formal guarantees:
            * the file has mode 0600 from its first byte on, and nothing that was there is replaced or followed.
        """
        lock: Any = pem.BestAvailableEncryption(passphrase) if passphrase else pem.NoEncryption()
        _write_new(path, self._key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, lock), 0o600)

    @classmethod
    def read(cls, path: Path, passphrase: bytes | None = None) -> Self:
        with open_plain(path, "key") as stream:
            # By the open file: the path may lead elsewhere by the time it is read.
            if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077:
                raise InvalidInput("key", path.name, "a file that its owner alone may read: chmod 600 it")
            content = stream.read(_MOST_BYTES)
        if not content.lstrip().startswith(_PRIVATE_MARKS):
            raise InvalidInput("key", path.name, cls.words)
        # The library raises a TypeError for both mistakes: only here can the message name the fix.
        if is_locked(content) != bool(passphrase):
            allowed = "a passphrase, since the key has one" if is_locked(content) else "none: this key has none"
            raise InvalidInput("passphrase", "one" if passphrase else "none", allowed)
        try:
            key = pem.load_pem_private_key(content, passphrase or None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            allowed = "the key's passphrase, and an undamaged file" if passphrase else cls.words
            raise InvalidInput("key", path.name, allowed) from None
        if not isinstance(key, cls.kind):
            raise InvalidInput("key", path.name, cls.words)
        return cls(key)


class PublicKey(PublicPem):
    """A key that checks signatures."""

    kind = Ed25519PublicKey
    words = "the public key that privmix keygen wrote (Ed25519, PEM)"

    def verifies(self, signature: bytes, content: bytes) -> bool:
        """Whether ``signature`` was made of ``content`` by this key's private half."""
        try:
            self._key.verify(signature, content)
        except InvalidSignature:
            return False
        return True


class PrivateKey(PrivatePem):
    """A key that signs. Anyone who has it can sign as its owner."""

    kind = Ed25519PrivateKey
    words = "the private key that privmix keygen wrote (Ed25519, PEM)"

    @property
    def public(self) -> PublicKey:
        """The half that others check with."""
        return PublicKey(self._key.public_key())

    def sign(self, content: bytes) -> bytes:
        """64 bytes; the same content gives the same signature (RFC 8032)."""
        return bytes(self._key.sign(content))


def is_locked(content: bytes) -> bool:
    return content.lstrip().startswith(_PRIVATE_MARKS[1])


def new_key_files(
    private: Path, public: Path, passphrase: bytes | None = None, key: PrivatePem | None = None
) -> PublicPem:
    """Make a key, or take ``key``, and store both halves in new files, the private one for its owner alone."""
    if private.resolve() == public.resolve():
        raise InvalidInput("public", str(public), "two files, one for each half")
    for path in (private, public):
        if path.exists() or path.is_symlink():
            raise InvalidInput("key file", str(path), "a file that does not exist yet")
    key = PrivateKey.new() if key is None else key
    key.write(private, passphrase)
    try:
        _write_new(public, key.public.to_pem(), 0o644)
    except PrivmixError:
        # Half a pair is of no use, and would be in the way of the next try.
        private.unlink()
        raise
    return key.public


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        # With its mode from the start: a later chmod would leave a moment for other users.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise InvalidInput("key file", str(path), "a file that does not exist yet") from None
    except OSError as error:
        raise StorageError(f"key file: cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            # A key that a crash takes away cannot open data sealed to it.
            os.fsync(stream.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StorageError(f"key file: cannot write {path}: {error.strerror}") from None
