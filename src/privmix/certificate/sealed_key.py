"""The key of a run, sealed to auditors so that they can make its result again: terms, file, and what is said of it.

The file lies beside the result and is no part of it. It holds the key under a one-time key (ChaCha20-Poly1305), and of
that a share for each auditor, sealed to theirs (:mod:`privmix.certificate.auditor_keys`). Where several auditors are
needed, shares are Shamir's (1979), so that fewer learn nothing; where one is enough, each has the whole.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from privmix.certificate.about import Day
from privmix.certificate.auditor_keys import AuditorKey, AuditorPublicKey
from privmix.certificate.dsse import decoded
from privmix.errors import WITHHELD, InvalidInput, MissingExtra, check_integer
from privmix.fields import Checked, Digest, Whole, read
from privmix.untrusted import parse_json

SEALED_FILE: Final = "sealed-key.json"
"""What it ends with: that of the release REL is REL.sealed-key.json."""
MOST_AUDITORS: Final = 16
MOST_SEALED_BYTES: Final = 2**16
_FORMAT: Final = "privmix sealed key 1"
_SECRET_BYTES: Final = 16
# Key and nonce serve one message.
_NONCE: Final = bytes(12)
_SHOWN_DIGITS: Final = 16


@dataclass(frozen=True)
class Terms(Checked):
    """For whom a key is sealed, and until when.

    Attributes:
        auditors: ids of their keys.
        together: how many of them it takes to open it.
        until: the day by whose end the sealed key is to be destroyed.
    """

    auditors: tuple[Digest, ...]
    together: Annotated[int, Whole(1, MOST_AUDITORS)]
    until: Day

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.auditors) <= MOST_AUDITORS or len(set(self.auditors)) != len(self.auditors):
            raise InvalidInput("auditors", len(self.auditors), f"1 to {MOST_AUDITORS} auditors, each once")
        check_integer("together", self.together, low=1, high=len(self.auditors))

    @property
    def whom(self) -> str:
        """The auditors, in words."""
        keys = [one[:_SHOWN_DIGITS] for one in self.auditors]
        if len(keys) == 1:
            return f"the auditor whose key is {keys[0]}"
        named = f"{', '.join(keys[:-1])} and {keys[-1]}"
        if self.together == 1:
            return f"any of the auditors whose keys are {named}"
        every = "all" if self.together == len(keys) else f"any {self.together}"
        return f"{every} together of the auditors whose keys are {named}"


@dataclass(frozen=True)
class Commitment(Terms):
    """What a certificate states of a sealed key, which stays with auditors: nobody else learns anything by it.

    Attributes:
        records_root: of a Merkle tree over the records, keyed by the run's key.
        sealed_sha256: of the sealed key's file.
    """

    records_root: Digest
    sealed_sha256: Digest

    @property
    def warning(self) -> str:
        """For whoever relies on the guarantee."""
        return (
            f"The key of this noise was not destroyed but sealed for {self.whom}, to be destroyed by the end of "
            f"{self.until}. Whoever opens it can take off all the noise: as long as a copy is left, the guarantee "
            "rests on those who hold it, too."
        )

    @property
    def statement(self) -> str:
        """What it is good for."""
        return (
            "With the sealed key, and beside the records, every released number can be made again and compared "
            "(privmix replay). The certificate commits to that key and, by hashes that tell nothing without it, to "
            "the records."
        )


def commitment_of(certificate: Mapping[str, Any]) -> Commitment | None:
    """What a certificate states of a sealed key; None where the key was destroyed, as it mostly is."""
    stated = certificate.get("replay")
    return None if stated is None else read(Commitment, stated, "certificate replay")


def bound_to(terms: Terms, release: str, plan: Mapping[str, Any], records_root: str) -> bytes:
    """What a sealed key is bound to: it opens for this release, plan, records and terms, and for no other."""
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
class Auditors:
    """Who may replay: their public keys, and the terms.

    Raises:
        InvalidInput: an auditor twice, or more are needed than there are, or too many.
        MissingExtra: several are needed together, and what shares keys is not installed.
    """

    keys: tuple[AuditorPublicKey, ...]
    until: str
    together: int

    def __post_init__(self) -> None:
        _ = self.terms
        if self.together > 1:
            _shamir()

    @property
    def terms(self) -> Terms:
        """As certificates state them."""
        return Terms(tuple(key.key_id for key in self.keys), self.together, self.until)

    def seal(self, content: bytes, bound: bytes) -> bytes:
        """The file of a sealed key.

        Formal guarantees:
            * Only these auditors: without as many of their private keys as the terms say, nothing of ``content`` can be
              told, unless X25519, HKDF-SHA256 or ChaCha20-Poly1305 is broken, each at a strength of 128 bits;
            * bound: it opens with the same ``bound`` alone;
            * fewer auditors than the terms say know nothing of it, whatever they compute.
        """
        secret = os.urandom(_SECRET_BYTES)
        shares = [(0, secret)] * len(self.keys)
        if self.together > 1:
            shares = _shamir().split(self.together, len(self.keys), secret)
        made = {
            "version": 1,
            "key": _text(ChaCha20Poly1305(_one_time(secret, bound)).encrypt(_NONCE, content, bound)),
            "shares": {
                key.key_id: _text(key.seal(bytes([number]) + share, bound))
                for key, (number, share) in zip(self.keys, shares, strict=True)
            },
        }
        return (json.dumps(made, indent=1) + "\n").encode()


def open_sealed(content: bytes, commitment: Commitment, bound: bytes, keys: Sequence[AuditorKey]) -> bytearray:
    """What was sealed, by as many of its auditors as it takes.

    Formal guarantees:
        * The committed one: a file of another SHA-256 than the certificate states is refused before anything is opened.
        * What opens it is checked: a wrong key or share ends in an error, never in another content.

    Args:
        content: of the file.
        commitment: of the certificate.
        bound: see :func:`bound_to`.
        keys: of auditors.

    Raises:
        InvalidInput: it is another file, these are not its auditors' keys or too few, or it is bound to something else.
        MissingExtra: it takes several, and what joins shares is not installed.
    """
    if hashlib.sha256(content).hexdigest() != commitment.sealed_sha256:
        raise InvalidInput("sealed key", "another file", "the one whose SHA-256 is in the certificate")
    known = {key.public.key_id: key for key in keys}
    for name in known:
        if name not in commitment.auditors:
            raise InvalidInput("key", f"key {name[:_SHOWN_DIGITS]}", f"that of {commitment.whom}")
    if len(known) < commitment.together:
        raise InvalidInput("key", f"{len(known)} keys", f"{commitment.together} of them: {commitment.whom}")
    key, sealed = _read(content)
    if set(sealed) != set(commitment.auditors):
        raise InvalidInput("sealed key shares", "of other auditors", "one for each auditor")
    shares = [known[name].open(sealed[name], bound) for name in list(known)[: commitment.together]]
    if any(len(share) != 1 + _SECRET_BYTES for share in shares):
        raise InvalidInput("sealed key shares", WITHHELD, "shares as privmix makes them")
    secret = shares[0][1:]
    if commitment.together > 1:
        secret = _shamir().combine([(share[0], share[1:]) for share in shares])
    try:
        return bytearray(ChaCha20Poly1305(_one_time(secret, bound)).decrypt(_NONCE, key, bound))
    except InvalidTag:
        raise InvalidInput("sealed key", WITHHELD, "a key that was sealed for this release, unchanged") from None


def _read(content: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The sealed key, and the sealed share of each auditor, of a stranger's file."""
    found = parse_json(content, "sealed key")
    known = isinstance(found, dict) and set(found) == {"version", "key", "shares"}
    if not known or type(found["version"]) is not int or found["version"] != 1:
        raise InvalidInput("sealed key", "other fields", "a file as privmix release --replay-for writes it")
    if not isinstance(found["shares"], dict):
        raise InvalidInput("sealed key shares", type(found["shares"]).__name__, "one for each auditor")
    shares = {name: decoded(share, "sealed key share") for name, share in found["shares"].items()}
    return decoded(found["key"], "sealed key"), shares


def _one_time(secret: bytes, bound: bytes) -> bytes:
    return HKDF(SHA256(), 32, None, bound).derive(secret)


def _shamir() -> Any:
    """Shamir's sharing over GF(2^128), of a library that is kept."""
    try:
        from Crypto.Protocol.SecretSharing import Shamir
    except ImportError:
        raise MissingExtra("pycryptodome", "auditors") from None
    return Shamir


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _canonical(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
