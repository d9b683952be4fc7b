"""Keys of runs, sealed to auditors: who opens them, what they are bound to, and what a stranger's file can do."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privmix.certificate.keys import PrivateKey, PublicKey, new_key_files
from privmix.certificate.sealed_key import (
    Auditor,
    AuditorKey,
    AuditorPublicKey,
    Commitment,
    Terms,
    bound_to,
    commitment_of,
    open_sealed,
)
from privmix.errors import InvalidInput
from tests.refusals import refuses

KEY, OTHER = AuditorKey.new(), AuditorKey.new()
CONTENT = bytes(range(33))
RELEASE, ROOT, DAY = "0" * 32, "1" * 64, "2099-01-01"
PLAN = {"rows": 3}


def sealed_key() -> tuple[bytes, Commitment, bytes]:
    auditor = Auditor(KEY.public, DAY)
    bound = bound_to(auditor.terms, RELEASE, PLAN, ROOT)
    content = auditor.seal(CONTENT, bound)
    digest = hashlib.sha256(content).hexdigest()
    return content, Commitment(**vars(auditor.terms), records_root=ROOT, sealed_sha256=digest), bound


def test_its_auditor_opens_it_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    content, sealed, bound = sealed_key()
    assert open_sealed(content, sealed, bound, KEY) == CONTENT
    with refuses("key"):
        open_sealed(content, sealed, bound, OTHER)
    assert CONTENT not in content
    # Sealing is new every time, so its hash, which certificates state, confirms no guess at the key.
    assert sealed_key()[0] != content
    # Not even where the certificate is rewritten for another.
    forged = Commitment((OTHER.public.key_id,), 1, DAY, ROOT, sealed.sealed_sha256)
    with refuses("sealed key shares"):
        open_sealed(content, forged, bound, OTHER)
    # Another file is refused before anything is opened.
    monkeypatch.setattr(AuditorKey, "open", lambda *_: pytest.fail("opened"))
    with refuses("sealed key"):
        open_sealed(content.replace(b"}", b" }"), sealed, bound, KEY)


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("release", "2" * 32),
        ("plan", {"rows": 4}),
        ("records_root", "2" * 64),
        ("until", "2099-01-02"),
        ("auditors", (OTHER.public.key_id,)),
    ],
)
def test_it_is_bound_to_what_it_was_sealed_for(what: str, other: Any) -> None:
    content, sealed, bound = sealed_key()
    terms: dict[str, Any] = {"auditors": sealed.auditors, "together": 1, "until": DAY}
    about: dict[str, Any] = {"release": RELEASE, "plan": PLAN, "records_root": ROOT}
    (terms if what in terms else about)[what] = other
    again = bound_to(Terms(**terms), *about.values())
    assert again != bound
    with refuses("sealed key"):
        open_sealed(content, sealed, again, KEY)


@pytest.mark.parametrize(
    ("auditors", "together", "until"), [(0, 1, DAY), (2, 1, DAY), (2, 2, DAY), (1, 2, DAY), (1, 0, DAY), (1, 1, "soon")]
)
def test_terms_of_other_than_one_auditor_are_refused(auditors: int, together: int, until: str) -> None:
    """Also those of releases whose key was shared among several."""
    stated = {"auditors": [key.public.key_id for key in (KEY, OTHER)[:auditors]], "together": together}
    certificate = {"replay": {**stated, "until": until, "records_root": ROOT, "sealed_sha256": "2" * 64}}
    with pytest.raises(InvalidInput, match="replay"):
        commitment_of(certificate)


@pytest.mark.parametrize(
    "change",
    [
        *({"version": 2}, {"version": True}, {"more": 1}),
        *({"shares": []}, {"shares": {}}, {"shares": {"a": "="}}),
        *({"key": 3}, {"key": "AAAA"}, {"key": ""}),
    ],
)
def test_whatever_is_no_sealed_key_is_refused_in_one_line(change: dict[str, Any]) -> None:
    content, sealed, bound = sealed_key()
    forged = json.dumps({**json.loads(content), **change}).encode()
    sealed = replace(sealed, sealed_sha256=hashlib.sha256(forged).hexdigest())
    with pytest.raises(InvalidInput) as refused:
        open_sealed(forged, sealed, bound, KEY)
    assert "\n" not in str(refused.value)


# Files of auditors' keys.


def test_keys_are_files_as_keys_that_sign(tmp_path: Path) -> None:
    private, public = tmp_path / "aud.pem", tmp_path / "aud.pub.pem"
    key = AuditorKey.new()
    assert new_key_files(private, public, b"secret", key).key_id == key.public.key_id
    assert AuditorPublicKey.read(public).key_id == key.public.key_id
    sealed = AuditorPublicKey.read(public).seal(b"a", b"b")
    assert AuditorKey.read(private, b"secret").open(sealed, b"b") == b"a"
    with refuses("key"):
        AuditorPublicKey.read(private)


def test_a_key_of_one_kind_is_none_of_the_other(tmp_path: Path) -> None:
    new_key_files(tmp_path / "aud.pem", tmp_path / "aud.pub.pem", key=AuditorKey.new())
    new_key_files(tmp_path / "ana.pem", tmp_path / "ana.pub.pem")
    for read, name, kind in (
        (AuditorKey.read, "ana.pem", "X25519"),
        (AuditorPublicKey.read, "ana.pub.pem", "X25519"),
        (PrivateKey.read, "aud.pem", "Ed25519"),
        (PublicKey.read, "aud.pub.pem", "Ed25519"),
    ):
        with pytest.raises(InvalidInput, match=kind):
            read(tmp_path / name)
