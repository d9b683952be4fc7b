"""Signed envelopes: DSSE version 1 around one payload, with one Ed25519 signature.

The encoding is that of the Dead Simple Signing Envelope (secure-systems-lab/dsse, protocol.md). What is signed is the
payload together with its type, so bytes that were signed as one thing are never taken for another.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Final

from privmix.errors import InvalidInput
from privmix.untrusted import parse_json

IN_TOTO: Final = "application/vnd.in-toto+json"
_SIGNATURE_BYTES: Final = 64
_KEY_ID_LENGTH: Final = 64
_ALLOWED: Final = "one DSSE envelope as privmix sign writes it"


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """The bytes that a DSSE signature is made of.

    Example (the specification's own):
        >>> pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
        b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True)
class Envelope:
    """A payload and who is said to have signed it; nothing is checked by reading one.

    Attributes:
        payload: bytes of type :data:`IN_TOTO`.
        key_id: SHA-256 of the public key that the signature names: a hint, which anyone can write there.
        signature: 64 bytes.
    """

    payload: bytes
    key_id: str
    signature: bytes

    @property
    def signed_bytes(self) -> bytes:
        """What the signature is of."""
        return pre_authentication_encoding(IN_TOTO, self.payload)

    def to_bytes(self) -> bytes:
        """The envelope as a JSON file; :meth:`from_bytes` is the inverse."""
        content = {
            "payloadType": IN_TOTO,
            "payload": base64.b64encode(self.payload).decode(),
            "signatures": [{"keyid": self.key_id, "sig": base64.b64encode(self.signature).decode()}],
        }
        return (json.dumps(content, indent=2) + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes, name: str) -> Envelope:
        """Read a stranger's envelope, strictly.

        Formal guarantees:
            * exactly one signature of Ed25519's length, one payload of in-toto's type, and no other field: whatever was
              not read is not there;
            * base64 is the one that :meth:`to_bytes` writes, so an envelope has one form.

        Args:
            content: of the file.
            name: what messages call it.

        Raises:
            InvalidInput: it is anything else.
        """
        found = parse_json(content, name)
        if not isinstance(found, dict) or set(found) != {"payloadType", "payload", "signatures"}:
            raise InvalidInput(name, "other fields", _ALLOWED)
        if found["payloadType"] != IN_TOTO:
            raise InvalidInput(f"{name} payloadType", found["payloadType"], IN_TOTO)
        signatures = found["signatures"]
        if not isinstance(signatures, list) or len(signatures) != 1:
            count = len(signatures) if isinstance(signatures, list) else signatures
            raise InvalidInput(f"{name} signatures", count, "exactly one signature")
        one = signatures[0]
        if not isinstance(one, dict) or set(one) != {"keyid", "sig"}:
            raise InvalidInput(f"{name} signatures", "other fields", "keyid and sig")
        key_id = one["keyid"]
        if not isinstance(key_id, str) or len(key_id) != _KEY_ID_LENGTH or set(key_id) - set("0123456789abcdef"):
            raise InvalidInput(f"{name} keyid", key_id, f"{_KEY_ID_LENGTH} hexadecimal digits")
        signature = decoded(one["sig"], f"{name} sig")
        if len(signature) != _SIGNATURE_BYTES:
            raise InvalidInput(f"{name} sig", f"{len(signature)} bytes", f"{_SIGNATURE_BYTES} bytes, as of Ed25519")
        return cls(decoded(found["payload"], f"{name} payload"), key_id, signature)


def decoded(text: Any, name: str) -> bytes:
    """The bytes of a text in base64, which has one form.

    Raises:
        InvalidInput: it is none, or not in that form.
    """
    try:
        found = base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        found = None
    # Several texts decode to the same bytes where the last digit has bits to spare.
    if found is None or base64.b64encode(found).decode() != text:
        raise InvalidInput(name, text if isinstance(text, str) else type(text).__name__, "base64")
    return found
