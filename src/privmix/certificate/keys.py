"""Keys in PEM files, the private ones for their owners alone; and those that sign: Ed25519."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any, Final, Protocol

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from privmix.errors import InvalidInput, PrivmixError, StorageError
from privmix.untrusted import open_plain, read_plain

# Keys of any kind are shorter.
_MOST_BYTES: Final = 2**16
_PUBLIC_MARK: Final = b"-----BEGIN PUBLIC KEY-----"
_PRIVATE_MARKS: Final = (b"-----BEGIN PRIVATE KEY-----", b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
_PRIVATE_WORDS: Final = "the private key that privmix keygen wrote (Ed25519, PEM)"
_PUBLIC_WORDS: Final = "the public key that privmix keygen wrote (Ed25519, PEM)"


class PublicHalf(Protocol):
    """What others get of a key."""

    @property
    def key_id(self) -> str: ...
    def to_pem(self) -> bytes: ...


class KeyPair(Protocol):
    """A key with both its halves."""

    @property
    def public(self) -> PublicHalf: ...
    def write(self, path: Path, passphrase: bytes | None = None) -> None: ...


class PublicKey:
    """A key that checks signatures. Publish it where those who check can find it, not only beside what it signed."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key

    @property
    def key_id(self) -> str:
        """SHA-256 of the key in DER form: ``openssl pkey -pubin -in KEY -outform DER | sha256sum`` says the same."""
        return key_id_of(self._key)

    def to_pem(self) -> bytes:
        """As a PEM file."""
        return public_pem(self._key)

    def verifies(self, signature: bytes, content: bytes) -> bool:
        """Whether ``signature`` was made of ``content`` by this key's private half."""
        try:
            self._key.verify(signature, content)
        except InvalidSignature:
            return False
        return True

    @classmethod
    def read(cls, path: Path) -> PublicKey:
        """The key in a PEM file.

        Raises:
            StorageError: it is missing or can't be read.
            InvalidInput: it holds no public Ed25519 key.
        """
        return cls(read_public_pem(path, Ed25519PublicKey, _PUBLIC_WORDS))


class PrivateKey:
    """A key that signs. Whoever has it can sign as its owner.

    Example:
        >>> key = PrivateKey.new()
        >>> key.public.verifies(key.sign(b"content"), b"content"), key.public.verifies(key.sign(b"content"), b"other")
        (True, False)
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"PrivateKey(key_id={self.public.key_id})"

    @property
    def public(self) -> PublicKey:
        """The half that others check with."""
        return PublicKey(self._key.public_key())

    def sign(self, content: bytes) -> bytes:
        """64 bytes; the same content gives the same signature (RFC 8032)."""
        return self._key.sign(content)

    @classmethod
    def new(cls) -> PrivateKey:
        """A fresh key, from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    def write(self, path: Path, passphrase: bytes | None = None) -> None:
        """Store the key in a new file for its owner alone, encrypted where a passphrase is given.

        Formal guarantees:
            * the file has mode 0600 from its first byte on, and nothing that was there is replaced or followed.

        Raises:
            InvalidInput: something is there already.
            StorageError: it can't be written.
        """
        write_private_pem(path, self._key, passphrase)

    @classmethod
    def read(cls, path: Path, passphrase: bytes | None = None) -> PrivateKey:
        """The key in a PEM file.

        Raises:
            StorageError: it is missing or can't be read.
            InvalidInput: it is no private Ed25519 key, others may read it, or the passphrase is missing or another.
        """
        return cls(read_private_pem(path, passphrase, Ed25519PrivateKey, _PRIVATE_WORDS))


def is_locked(content: bytes) -> bool:
    """Whether a PEM file is a key under a passphrase."""
    return content.lstrip().startswith(_PRIVATE_MARKS[1])


def key_id_of(key: Any) -> str:
    """SHA-256 of a public key in DER form."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def public_pem(key: Any) -> bytes:
    """A public key as a PEM file."""
    found: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def read_public_pem(path: Path, kind: Any, words: str) -> Any:
    """The public key in a PEM file.

    Args:
        path: of the file.
        kind: the class that it must be of.
        words: what is allowed, for people.

    Raises:
        StorageError: it is missing or can't be read.
        InvalidInput: it holds no public key of this kind.
    """
    content = read_plain(path, "key", _MOST_BYTES)
    if any(mark in content for mark in _PRIVATE_MARKS):
        raise InvalidInput("key", path.name, f"{words}; this is a private one: keep it to yourself")
    try:
        key = load_pem_public_key(content) if content.lstrip().startswith(_PUBLIC_MARK) else None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, kind):
        raise InvalidInput("key", path.name, words)
    return key


def write_private_pem(path: Path, key: Any, passphrase: bytes | None) -> None:
    """Store a private key; see :meth:`PrivateKey.write`."""
    lock: KeySerializationEncryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    _write_new(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock), 0o600)


def read_private_pem(path: Path, passphrase: bytes | None, kind: Any, words: str) -> Any:
    """The private key in a PEM file; arguments and errors as :func:`read_public_pem` and :meth:`PrivateKey.read`."""
    with open_plain(path, "key") as stream:
        if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077:
            raise InvalidInput("key", path.name, "a file that its owner alone may read: chmod 600 it")
        content = stream.read(_MOST_BYTES)
    if not content.lstrip().startswith(_PRIVATE_MARKS):
        raise InvalidInput("key", path.name, words)
    if is_locked(content) != bool(passphrase):
        allowed = "a passphrase, since the key has one" if is_locked(content) else "none: this key has none"
        raise InvalidInput("passphrase", "one" if passphrase else "none", allowed)
    try:
        key = load_pem_private_key(content, passphrase or None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        allowed = "the key's passphrase, and an undamaged file" if passphrase else words
        raise InvalidInput("key", path.name, allowed) from None
    if not isinstance(key, kind):
        raise InvalidInput("key", path.name, words)
    return key


def new_key_files(
    private: Path, public: Path, passphrase: bytes | None = None, key: KeyPair | None = None
) -> PublicHalf:
    """Make a key and store both halves, the private one for its owner alone.

    Args:
        private, public: files to make.
        passphrase: to encrypt the private one with.
        key: to be stored; None makes one that signs.

    Raises:
        InvalidInput: one of the files is there already; nothing is written then.
        StorageError: they can't be written.
    """
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
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise InvalidInput("key file", str(path), "a file that does not exist yet") from None
    except OSError as error:
        raise StorageError(f"key file: can't write {path}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StorageError(f"key file: can't write {path}: {error.strerror}") from None
