"""Keys that a run's key is sealed to: X25519 in PEM files, of auditors who may replay a release.

Sealing is hybrid public key encryption as RFC 9180 has it: X25519, HKDF-SHA256, ChaCha20-Poly1305, base mode. Whoever
knows the public key can seal, so that a sealed key says nothing of who sealed it.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privmix.certificate.keys import PrivatePem, PublicPem
from privmix.errors import WITHHELD, InvalidInput

_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


class AuditorPublicKey(PublicPem):
    """A key that seals. What is sealed to it, the auditor alone can open."""

    kind = X25519PublicKey
    words = "the public key that privmix keygen --auditor wrote (X25519, PEM)"

    def seal(self, content: bytes, bound: bytes) -> bytes:
        """``content`` for the auditor, who opens it with the same ``bound`` and no other; new bytes every time."""
        return bytes(_SUITE.encrypt(content, self._key, bound))


class AuditorKey(PrivatePem):
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

    kind = X25519PrivateKey
    words = "the private key that privmix keygen --auditor wrote (X25519, PEM)"

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
