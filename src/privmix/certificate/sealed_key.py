"""The key of a run, sealed to an auditor, who can then replay the run."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from privmix.certificate.about import Day
from privmix.certificate.keys import PrivatePem, PublicPem, decoded
from privmix.errors import WITHHELD, InvalidInput
from privmix.fields import Checked, Digest, PlainCount, read
from privmix.untrusted import parse_json

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
        return AuditorPublicKey(self._key.public_key())

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """Open sealed content; raise InvalidInput for another key, changed content or another ``bound``."""
        try:
            return bytes(_SUITE.decrypt(sealed, self._key, bound))
        except (InvalidTag, ValueError):
            allowed = "what was sealed to this key for this release, unchanged"
            raise InvalidInput("sealed key", WITHHELD, allowed) from None


# Never in the folder: a published copy cannot be taken back, and a later holder of the auditor's key could open it.
# Sealed by HPKE, not from the run's key, which would need a construction of our own.
SEALED_FILE: Final = "sealed-key.json"
"""End of its name: that of the release REL is REL.sealed-key.json."""
MOST_SEALED_BYTES: Final = 2**16
_FORMAT: Final = "privmix sealed key 1"
# As many bits as the strength of X25519.
_SECRET_BYTES: Final = 16
# A share of a key that is not split, with its number.
_WHOLE: Final = bytes(1)
# Key and nonce serve one message.
_NONCE: Final = bytes(12)
_SHOWN_DIGITS: Final = 16


@dataclass(frozen=True)
class Terms(Checked):
    """The auditor (its key's id) of a sealed key, and the last day before its destruction; ``together`` is 1."""

    auditors: tuple[Digest, ...]
    together: PlainCount
    until: Day

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.auditors) != 1 or self.together != 1:
            allowed = "1 auditor; for several install the privmix version that the certificate names"
            raise InvalidInput("auditors", len(self.auditors), allowed)

    @property
    def auditor(self) -> str:
        return self.auditors[0]

    @property
    def whom(self) -> str:
        return f"the auditor whose key is {self.auditor[:_SHOWN_DIGITS]}"


@dataclass(frozen=True)
class Commitment(Terms):
    """A certificate's statement about a sealed key; it reveals nothing to anyone but the auditor."""

    # records_root: of a Merkle tree over the records, keyed by the run's key.

    records_root: Digest
    sealed_sha256: Digest

    @property
    def warning(self) -> str:
        return (
            f"The key of this noise was not destroyed but sealed for {self.whom}, to be destroyed by the end of "
            f"{self.until}. Whoever opens it can take off all the noise: as long as a copy is left, the guarantee "
            "rests on those who hold it, too."
        )

    @property
    def statement(self) -> str:
        return (
            "With the sealed key, and beside the records, every released number can be made again and compared "
            "(privmix replay). The certificate commits to that key and, by hashes that tell nothing without it, to "
            "the records."
        )


def commitment_of(certificate: Mapping[str, Any]) -> Commitment | None:
    """Return the certificate's statement of a sealed key; None where the key was destroyed, as it mostly is."""
    stated = certificate.get("replay")
    return None if stated is None else read(Commitment, stated, "certificate replay")


def bound_to(terms: Terms, release: str, plan: Mapping[str, Any], records_root: str) -> bytes:
    """Binding of a sealed key: it opens for this release, plan, records and terms, and for no other."""
    about = {
        "format": _FORMAT,
        "release": release,
        "plan_sha256": hashlib.sha256(_canonical(plan)).hexdigest(),
        "records_root": records_root,
        "auditors": list(terms.auditors),
        "together": terms.together,
        "until": terms.until,
    }
    return _canonical(about)


@dataclass(frozen=True)
class Auditor:
    """Who may replay: their public key, and until when."""

    key: AuditorPublicKey
    until: str

    def __post_init__(self) -> None:
        _ = self.terms

    @property
    def terms(self) -> Terms:
        return Terms((self.key.key_id,), 1, self.until)

    def seal(self, content: bytes, bound: bytes) -> bytes:
        """Return the bytes of a sealed key's file.

        Formal guarantees:
            * Only this auditor: without the private key nothing of ``content`` can be learned, unless X25519,
              HKDF-SHA256 or ChaCha20-Poly1305 is broken, each at a strength of 128 bits;
            * bound: it opens with the same ``bound`` alone.
        """
        secret = os.urandom(_SECRET_BYTES)
        # Two layers, since the format has a share for each auditor.
        made = {
            "version": 1,
            "key": _text(ChaCha20Poly1305(_one_time(secret, bound)).encrypt(_NONCE, content, bound)),
            "shares": {self.key.key_id: _text(self.key.seal(_WHOLE + secret, bound))},
        }
        return (json.dumps(made, indent=1) + "\n").encode()


def open_sealed(content: bytes, commitment: Commitment, bound: bytes, key: AuditorKey) -> bytearray:
    """Open a sealed key's file with the auditor's key.

    Formal guarantees:
        * The committed one: a file of another SHA-256 than the certificate states is refused before anything is opened.
        * What opens it is checked: a wrong key ends in an error, never in another content.
    """
    if hashlib.sha256(content).hexdigest() != commitment.sealed_sha256:
        raise InvalidInput("sealed key", "another file", "the one whose SHA-256 is in the certificate")
    if key.public.key_id != commitment.auditor:
        raise InvalidInput("key", f"key {key.public.key_id[:_SHOWN_DIGITS]}", f"that of {commitment.whom}")
    match parse_json(content, "sealed key"):
        case {"version": int(version), "key": sealed, "shares": dict(shares), **more} if not more:
            # True equals 1.
            if type(version) is not int or version != 1 or set(shares) != {commitment.auditor}:
                raise InvalidInput("sealed key shares", "of other auditors or another version", commitment.whom)
        case _:
            raise InvalidInput("sealed key", "other fields", "a file as privmix release --replay-for writes it")
    share = key.open(decoded(shares[commitment.auditor], "sealed key share"), bound)
    if len(share) != len(_WHOLE) + _SECRET_BYTES:
        raise InvalidInput("sealed key shares", WITHHELD, "shares as privmix makes them")
    try:
        cipher = ChaCha20Poly1305(_one_time(share[len(_WHOLE) :], bound))
        # A bytearray can be overwritten after use.
        return bytearray(cipher.decrypt(_NONCE, decoded(sealed, "sealed key"), bound))
    except InvalidTag:
        raise InvalidInput("sealed key", WITHHELD, "a key that was sealed for this release, unchanged") from None


def _one_time(secret: bytes, bound: bytes) -> bytes:
    # With what it is bound to: the same secret gives no key for another release.
    return HKDF(SHA256(), 32, None, bound).derive(secret)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _canonical(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sealed_words(commitment: Commitment | None) -> str:
    """State for whom a key was sealed, until when, and whether that day (UTC) is past; "" where none is sealed."""
    if commitment is None:
        return ""
    if datetime.now(UTC).date().isoformat() > commitment.until:
        past = f"{commitment.until}, the day of its end, is past"
        return f"sealed for {commitment.whom}; {past}: ask its owner whether it was destroyed"
    return f"it exists, sealed for {commitment.whom}, until {commitment.until}: the guarantee rests on them, too"
