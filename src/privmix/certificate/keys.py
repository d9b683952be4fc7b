"""Keys in PEM files, the private ones for their owners alone; those that sign, Ed25519; and signed statements.

A statement is in-toto (version 1) in a DSSE envelope (version 1) with one signature.
"""

import base64
import binascii
import hashlib
import json
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from privmix.errors import InvalidInput, PrivmixError, StorageError
from privmix.untrusted import open_plain, parse_json, read_plain

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


# A signature covers payload and type (dsse's protocol.md): bytes signed as one type are never taken for another.

# Written here on top of `cryptography`: model-signing brings sigstore and thirteen more packages, and securesystemslib
# accepts several signatures and key types. Tests check these envelopes with it.
IN_TOTO: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
_SIGNATURE_BYTES: Final = 64
_KEY_ID_LENGTH: Final = 64


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that a DSSE signature covers."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True)
class Statement:
    """A statement and its claimed signer; reading one checks its layout alone."""

    # key_id: SHA-256 of the public key, a hint that anyone can write; None: unsigned. checked: by checked_by.

    payload: bytes
    key_id: str | None = None
    signature: bytes = b""
    checked: bool = False

    @classmethod
    def of(
        cls, kind: str, subject: Mapping[str, str], predicate: Mapping[str, Any], key: PrivateKey | None = None
    ) -> "Statement":
        """Make a statement of type ``kind`` (a URI) about names with their SHA-256, signed where there is a key."""
        content = {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in subject.items()],
            "predicateType": kind,
            "predicate": predicate,
        }
        made = cls(json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())
        if key is None:
            return made
        return replace(made, key_id=key.public.key_id, signature=key.sign(made.signed_bytes), checked=True)

    @property
    def signed_bytes(self) -> bytes:
        return pre_authentication_encoding(IN_TOTO, self.payload)

    @property
    def signer(self) -> dict[str, Any] | None:
        """Key and whether it was checked, as JSON values; None where unsigned."""
        return None if self.key_id is None else {"key_id": self.key_id, "checked": self.checked}

    def parts(self, kind: str, name: str) -> tuple[dict[str, str], dict[str, Any]]:
        """Return subject and predicate, read strictly.

        Formal guarantees:
            * one form: a payload is the one that :meth:`of` makes of these parts, byte for byte. Other spellings of
              numbers, further fields or spaces are refused: nothing that was not read is there.
        """
        allowed = f"a statement of type {kind}, as privmix writes it"
        subject: dict[str, str] = {}
        match parse_json(self.payload, f"{name} payload"):
            case {"predicateType": str(found), "predicate": dict(predicate), "subject": list(listed)} if found == kind:
                for item in listed:
                    match item:
                        case {"name": str(key), "digest": {"sha256": str(digest)}}:
                            subject[key] = digest
                        case _:
                            raise InvalidInput(f"{name} subject", "other fields", "names with their SHA-256, each once")
            case _:
                raise InvalidInput(name, "other fields or another predicateType", allowed)
        if Statement.of(kind, subject, predicate).payload != self.payload:
            raise InvalidInput(name, "another form", allowed)
        return subject, predicate

    def checked_by(self, key: PublicKey, name: str) -> "Statement":
        """Return the same, marked as checked, once the owner of ``key`` is found to have signed it."""
        if self.key_id is None:
            raise InvalidInput(name, "no signature", "a signed statement")
        if not key.verifies(self.signature, self.signed_bytes):
            if self.key_id != key.key_id:
                raise InvalidInput(
                    "key", f"key {key.key_id}", f"the key that signed, which the file names as {self.key_id}"
                )
            raise InvalidInput(name, "a signature that is wrong", "the signature of its own payload by `key`")
        # The key id is not signed: another one could be put into the file.
        if self.key_id != key.key_id:
            raise InvalidInput(f"{name} keyid", self.key_id, f"{key.key_id}, the key that signed")
        return replace(self, checked=True)

    def to_bytes(self) -> bytes:
        """Return the file: an envelope, or the payload alone where unsigned; :meth:`from_bytes` is the inverse."""
        if self.key_id is None:
            return self.payload + b"\n"
        content = {
            "payloadType": IN_TOTO,
            "payload": base64.b64encode(self.payload).decode(),
            "signatures": [{"keyid": self.key_id, "sig": base64.b64encode(self.signature).decode()}],
        }
        return (json.dumps(content, indent=2) + "\n").encode()

    @classmethod
    def read(cls, path: Path, name: str, most_bytes: int, *, unsigned: bool = False) -> "Statement":
        """Read a plain file of at most ``most_bytes`` bytes; see :meth:`from_bytes`."""
        return cls.from_bytes(read_plain(path, name, most_bytes), name, unsigned=unsigned)

    @classmethod
    def from_bytes(cls, content: bytes, name: str, *, unsigned: bool = False) -> "Statement":
        """Read a stranger's envelope, strictly; ``unsigned`` allows a statement without one.

        Formal guarantees:
            * exactly one signature of Ed25519's length, one payload of in-toto's type, and no other field: all that was
              not read is not there;
            * base64 is the one that :meth:`to_bytes` writes, so an envelope has one form.
        """
        found = parse_json(content, name)
        if unsigned and not (isinstance(found, dict) and "payloadType" in found):
            return cls(content.removesuffix(b"\n"))
        match found:
            case {"payloadType": kind, "payload": payload, "signatures": [{"keyid": key_id, "sig": sig, **a}], **b} if (
                not a and not b
            ):
                pass
            case _:
                raise InvalidInput(name, "other fields", "one DSSE envelope with exactly one signature: keyid and sig")
        if kind != IN_TOTO:
            raise InvalidInput(f"{name} payloadType", kind, IN_TOTO)
        if not isinstance(key_id, str) or len(key_id) != _KEY_ID_LENGTH or set(key_id) - set("0123456789abcdef"):
            raise InvalidInput(f"{name} keyid", key_id, f"{_KEY_ID_LENGTH} hexadecimal digits")
        signature = decoded(sig, f"{name} sig")
        if len(signature) != _SIGNATURE_BYTES:
            raise InvalidInput(f"{name} sig", f"{len(signature)} bytes", f"{_SIGNATURE_BYTES} bytes, as of Ed25519")
        return cls(decoded(payload, f"{name} payload"), key_id, signature)


def decoded(text: Any, name: str) -> bytes:
    """Return the bytes of a text in base64, which has one form."""
    try:
        found = base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        found = None
    # Several texts decode to the same bytes where the last digit has bits to spare.
    if found is None or base64.b64encode(found).decode() != text:
        raise InvalidInput(name, text if isinstance(text, str) else type(text).__name__, "base64")
    return found
