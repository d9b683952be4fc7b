"""Auditors' keys that a run's key is sealed to: X25519 in PEM files, by RFC 9180's base mode."""
# Anyone with the public key can seal: a sealed key does not identify its sealer.

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privmix.certificate.keys import PrivatePem, PublicPem
from privmix.errors import WITHHELD, InvalidInput

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class AuditorPublicKey(PublicPem):
    """A key that seals. The auditor alone can open data sealed to it."""

    kind = X25519PublicKey
    words = "the public key that privmix keygen --auditor wrote (X25519, PEM)"

    def seal(self, content: bytes, bound: bytes) -> bytes:
        """``content`` for the auditor, who opens it with the same ``bound`` and no other; new bytes every time."""
        return bytes(_SUITE.encrypt(content, self._key, bound))


class AuditorKey(PrivatePem):
    """A key that opens what was sealed to its public half. Its holder can remove noise: for its owner alone.

    Formal guarantees:
        * what was sealed to another key, was changed, or is bound to something else does not open.
    """

    kind = X25519PrivateKey
    words = "the private key that privmix keygen --auditor wrote (X25519, PEM)"

    @property
    def public(self) -> AuditorPublicKey:
        """The half that others seal with."""
        return AuditorPublicKey(self._key.public_key())

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """Open sealed content; raise InvalidInput for another key, changed content or another ``bound``."""
        try:
            return bytes(_SUITE.decrypt(sealed, self._key, bound))
        except (InvalidTag, ValueError):
            allowed = "what was sealed to this key for this release, unchanged"
            raise InvalidInput("sealed key", WITHHELD, allowed) from None
