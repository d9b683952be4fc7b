"""Keys of runs, sealed to auditors: who opens them, what they are bound to, and what a stranger's file can do."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from privmix.certificate.keys import PrivateKey, PublicKey, new_key_files
from privmix.certificate.sealed_key import (
    ENDED_FILE,
    Auditor,
    AuditorKey,
    AuditorPublicKey,
    Commitment,
    Ending,
    Terms,
    bound_to,
    commitment_of,
    open_sealed,
    read_end,
    sealed_words,
    state_end,
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


def test_its_auditor_opens_it_and_nobody_else() -> None:
    content, sealed, bound = sealed_key()
    assert open_sealed(content, sealed, bound, KEY) == CONTENT
    with refuses("key"):
        open_sealed(content, sealed, bound, OTHER)
    assert CONTENT not in content
    # Not even where the certificate is rewritten for another.
    forged = Commitment((OTHER.public.key_id,), 1, DAY, ROOT, sealed.sealed_sha256)
    with refuses("sealed key shares"):
        open_sealed(content, forged, bound, OTHER)


def test_sealing_is_new_every_time() -> None:
    """So its hash, which certificates state, confirms no guess at the key."""
    assert sealed_key()[0] != sealed_key()[0]


@pytest.mark.parametrize("what", ["release", "plan", "records", "until", "auditors"])
def test_it_is_bound_to_what_it_was_sealed_for(what: str) -> None:
    content, sealed, bound = sealed_key()
    terms: dict[str, Any] = {"auditors": sealed.auditors, "together": 1, "until": DAY}
    about: dict[str, Any] = {"release": RELEASE, "plan": PLAN, "records_root": ROOT}
    other = {
        "release": "2" * 32,
        "plan": {"rows": 4},
        "records": "2" * 64,
        "until": "2099-01-02",
        "auditors": (OTHER.public.key_id,),
    }
    (terms if what in terms else about)["records_root" if what == "records" else what] = other[what]
    again = bound_to(Terms(**terms), about["release"], about["plan"], about["records_root"])
    assert again != bound
    with refuses("sealed key"):
        open_sealed(content, sealed, again, KEY)


def test_another_file_is_refused_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    content, sealed, bound = sealed_key()
    monkeypatch.setattr(AuditorKey, "open", lambda *_: pytest.fail("opened"))
    with refuses("sealed key"):
        open_sealed(content.replace(b"}", b" }"), sealed, bound, KEY)


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
        {"version": 2},
        {"version": True},
        {"more": 1},
        {"shares": []},
        {"shares": {}},
        {"shares": {"a": "="}},
        {"key": 3},
        {"key": "AAAA"},
        {"key": ""},
    ],
)
def test_whatever_is_no_sealed_key_is_refused_in_one_line(change: dict[str, Any]) -> None:
    content, sealed, bound = sealed_key()
    forged = json.dumps({**json.loads(content), **change}).encode()
    digest = hashlib.sha256(forged).hexdigest()
    of_it = Commitment(sealed.auditors, 1, DAY, ROOT, digest)
    with pytest.raises(InvalidInput) as refused:
        open_sealed(forged, of_it, bound, KEY)
    assert "\n" not in str(refused.value)


# Files of auditors' keys.


def test_keys_are_files_as_keys_that_sign(tmp_path: Path) -> None:
    private, public = tmp_path / "aud.pem", tmp_path / "aud.pub.pem"
    key = AuditorKey.new()
    assert new_key_files(private, public, b"secret", key).key_id == key.public.key_id
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert AuditorPublicKey.read(public).key_id == key.public.key_id
    sealed = AuditorPublicKey.read(public).seal(b"a", b"b")
    assert AuditorKey.read(private, b"secret").open(sealed, b"b") == b"a"
    for wrong in (None, b"other"):
        with pytest.raises(InvalidInput, match="passphrase"):
            AuditorKey.read(private, wrong)
    with refuses("key"):
        AuditorPublicKey.read(private)
    private.chmod(0o644)
    with refuses("key"):
        AuditorKey.read(private, b"secret")


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


# Statements of its end.


def test_a_statement_is_about_one_release_and_somebodys_word(tmp_path: Path) -> None:
    sealed, signer = sealed_key()[1], PrivateKey.new()
    ending = Ending(RELEASE, sealed.sealed_sha256, sealed.auditors, "2026-11-25")
    place = tmp_path / ENDED_FILE
    assert read_end(place, RELEASE, sealed, "3" * 64) is None
    place.write_bytes(state_end(ending, "3" * 64, signer).to_bytes())
    found = read_end(place, RELEASE, sealed, "3" * 64)
    assert found is not None
    assert found.ending == ending
    assert found.statement.checked_by(signer.public, "statement").checked
    with refuses("key"):
        found.statement.checked_by(PrivateKey.new().public, "statement")
    said = sealed_words(sealed, found)
    assert said.startswith("destroyed on 2026-11-25 with its auditor's key, says key")
    assert "not checked" in said
    assert "can't be" in ending.says
    for release, certificate in (("2" * 32, "3" * 64), (RELEASE, "4" * 64)):
        with refuses("replay-ended.dsse.json"):
            read_end(place, release, sealed, certificate)
    other = Commitment(sealed.auditors, 1, DAY, ROOT, "5" * 64)
    with refuses("replay-ended.dsse.json"):
        read_end(place, RELEASE, other, "3" * 64)
    # Of somebody who is no auditor.
    place.write_bytes(
        state_end(Ending(RELEASE, sealed.sealed_sha256, ("6" * 64,), "2026-11-25"), "3" * 64, signer).to_bytes()
    )
    with refuses("replay-ended.dsse.json"):
        read_end(place, RELEASE, sealed, "3" * 64)


def test_a_statement_that_was_edited_is_not_its_signers(tmp_path: Path) -> None:
    sealed, signer = sealed_key()[1], PrivateKey.new()
    place = tmp_path / ENDED_FILE
    made = state_end(Ending(RELEASE, sealed.sealed_sha256, (), "2026-11-25"), "3" * 64, signer).to_bytes()
    later = state_end(Ending(RELEASE, sealed.sealed_sha256, (), "2026-11-26"), "3" * 64, PrivateKey.new()).to_bytes()
    mixed = {**json.loads(later), "signatures": json.loads(made)["signatures"]}
    place.write_text(json.dumps(mixed))
    found = read_end(place, RELEASE, sealed, "3" * 64)
    assert found is not None
    with refuses("statement"):
        found.statement.checked_by(signer.public, "statement")
    place.write_bytes(b"{}")
    with pytest.raises(InvalidInput):
        read_end(place, RELEASE, sealed, "3" * 64)


@pytest.mark.parametrize("how", ["pipe", "link", "long"])
def test_a_strangers_statement_is_a_plain_file_of_some_size(how: str, tmp_path: Path) -> None:
    sealed, place = sealed_key()[1], tmp_path / ENDED_FILE
    if how == "pipe":
        os.mkfifo(place)
    elif how == "link":
        place.symlink_to("/etc/hostname")
    else:
        place.write_bytes(b" " * 2**17)
    with pytest.raises(InvalidInput):
        read_end(place, RELEASE, sealed, "3" * 64)
