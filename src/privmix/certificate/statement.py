"""Signed statements: in-toto (Statement version 1) in a DSSE envelope (version 1) with one Ed25519 signature."""
# It covers payload and type (dsse's protocol.md): bytes signed as one type are never taken for another.

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from privmix.certificate.keys import PrivateKey, PublicKey
from privmix.errors import InvalidInput
from privmix.untrusted import parse_json, read_plain

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
    ) -> Statement:
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

    def checked_by(self, key: PublicKey, name: str) -> Statement:
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
    def read(cls, path: Path, name: str, most_bytes: int, *, unsigned: bool = False) -> Statement:
        """Read a plain file of at most ``most_bytes`` bytes; see :meth:`from_bytes`."""
        return cls.from_bytes(read_plain(path, name, most_bytes), name, unsigned=unsigned)

    @classmethod
    def from_bytes(cls, content: bytes, name: str, *, unsigned: bool = False) -> Statement:
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
