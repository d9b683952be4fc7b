"""Signatures over folders: what was signed holds, and whatever else there is has its own error."""

import base64
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.signer import SSlibKey

from privmix.certificate import (
    ATTESTATION_FILE,
    PrivateKey,
    PublicKey,
    Subject,
    claimed_key,
    new_key_files,
    sign_folder,
    verify_signature,
)
from privmix.certificate.keys import IN_TOTO, STATEMENT_TYPE, Statement, pre_authentication_encoding
from privmix.certificate.signing import PREDICATE_TYPE
from privmix.errors import InvalidInput, PrivmixError, StorageError
from tests.refusals import refuses

KEY = PrivateKey.new()
OTHER = PrivateKey.new()
SUBJECT = Subject("release", "0" * 32, 1.25, 1e-5, "add_remove")


def check(_: Path) -> Subject:
    """A folder that holds."""
    return SUBJECT


def make(folder: Path) -> Path:
    """A folder in the layout of a release."""
    (folder / "data").mkdir(parents=True)
    (folder / "certificate.json").write_text("{}")
    (folder / "README.md").write_text("# card")
    (folder / "data" / "train-00000-of-00001.parquet").write_bytes(bytes(range(256)) * 50)
    return folder


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    folder = make(tmp_path / "REL")
    sign_folder(folder, KEY, check)
    return folder


def envelope_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / ATTESTATION_FILE).read_bytes())


def signed_anew(folder: Path, change: Callable[[dict[str, Any]], object], key: PrivateKey = KEY) -> None:
    """Another statement, under a true signature."""
    statement = json.loads(base64.b64decode(envelope_of(folder)["payload"]))
    change(statement)
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    signature = key.sign(pre_authentication_encoding(IN_TOTO, payload))
    (folder / ATTESTATION_FILE).write_bytes(Statement(payload, key.public.key_id, signature).to_bytes())


def test_what_is_signed_is_every_file_and_nothing_else(signed: Path) -> None:
    found = verify_signature(signed, KEY.public, check)
    assert (found.key_id, found.files) == (KEY.public.key_id, 3)
    assert claimed_key(signed) == KEY.public.key_id
    statement = json.loads(base64.b64decode(envelope_of(signed)["payload"]))
    assert (statement["_type"], statement["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
    names = ["README.md", "certificate.json", "data/train-00000-of-00001.parquet"]
    assert [item["name"] for item in statement["subject"]] == names
    assert statement["predicate"]["guarantee"] == {"epsilon": 1.25, "delta": 1e-5, "adjacency": "add_remove"}
    assert not list(signed.glob(".*"))


def test_another_program_accepts_the_envelope(signed: Path) -> None:
    """Securesystemslib reads DSSE on its own: same encoding, same signature."""
    theirs = TheirEnvelope.from_dict(envelope_of(signed))
    assert theirs.pae() == pre_authentication_encoding(IN_TOTO, theirs.payload)
    mine, other = (
        SSlibKey(KEY.public.key_id, "ed25519", "ed25519", {"public": key.public._key.public_bytes_raw().hex()})
        for key in (KEY, OTHER)
    )
    assert KEY.public.to_pem().startswith(b"-----BEGIN PUBLIC KEY-----")
    assert set(theirs.verify([mine], threshold=1)) == {KEY.public.key_id}
    with pytest.raises(Exception, match="threshold"):
        theirs.verify([other], threshold=1)


def linked(folder: Path) -> None:
    (folder / ATTESTATION_FILE).rename(folder.parent / "a")
    (folder / ATTESTATION_FILE).symlink_to(folder.parent / "a")


EDITS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a changed file": (lambda folder: (folder / "README.md").write_text("# other"), r"README\.md: got 'other content'"),
    "a changed certificate": (
        lambda folder: (folder / "certificate.json").write_text("{ }"),
        r"certificate\.json: got",
    ),
    "an added file": (lambda folder: (folder / "data" / "more").write_text(""), "data/more: got 'a file that was not"),
    "a removed file": (lambda folder: (folder / "README.md").unlink(), r"README\.md: got 'no such file'"),
    "a renamed file": (lambda folder: (folder / "README.md").rename(folder / "READ.md"), r"READ\.md: got 'a file that"),
    "a link": (lambda folder: (folder / "data" / "more").symlink_to("/etc/hostname"), "data/more.*no links"),
    "a linked folder": (lambda folder: (folder / "more").symlink_to("/etc"), "more.*no links"),
    "a pipe": (lambda folder: os.mkfifo(folder / "pipe"), "pipe.*no links"),
    "no signature": (lambda folder: (folder / ATTESTATION_FILE).unlink(), "without signature"),
    "a linked signature": (linked, "no links"),
}


@pytest.mark.parametrize(("change", "words"), EDITS.values(), ids=EDITS)
def test_a_folder_that_was_changed_is_refused(change: Callable[[Path], object], words: str, signed: Path) -> None:
    change(signed)
    with pytest.raises(InvalidInput, match=words) as caught:
        verify_signature(signed, KEY.public, check)
    assert caught.value.exit_code == 2


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def spare_bits(text: str) -> str:
    """Other base64 of the same 64 bytes: the last digit has four bits to spare, which are 0."""
    other = text[:-3] + chr(ord(text[-3]) + 1) + "=="
    assert base64.b64decode(other) == base64.b64decode(text)
    return other


def flipped(text: str) -> str:
    content = bytearray(base64.b64decode(text))
    content[7] ^= 1
    return b64(bytes(content))


def sig(envelope: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The envelope with fields of its one signature changed."""
    return {**envelope, "signatures": [{**envelope["signatures"][0], **changes}]}


def sig_of(envelope: dict[str, Any]) -> str:
    return str(envelope["signatures"][0]["sig"])


MALFORMED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an edited payload": (lambda e: {**e, "payload": flipped(e["payload"])}, "a signature that is wrong"),
    "an edited signature": (lambda e: sig(e, sig=flipped(sig_of(e))), "a signature that is wrong"),
    "another payload type": (lambda e: {**e, "payloadType": "text/plain"}, "payloadType"),
    "two signatures": (lambda e: {**e, "signatures": e["signatures"] * 2}, "exactly one"),
    "no signatures": (lambda e: {**e, "signatures": []}, "exactly one"),
    "signatures of text": (lambda e: {**e, "signatures": "none"}, "exactly one"),
    "a field more": (lambda e: {**e, "note": "trust me"}, "other fields"),
    "a signature's field more": (lambda e: sig(e, alg="none"), "keyid and sig"),
    "a field less": (lambda e: {"payload": e["payload"]}, "other fields"),
    "no object": (lambda e: [e], "other fields"),
    "no base64": (lambda e: {**e, "payload": "?" + e["payload"]}, "payload.*base64"),
    "base64 with line ends": (lambda e: {**e, "payload": e["payload"] + "\n"}, "payload.*base64"),
    "base64 in another form": (lambda e: sig(e, sig=spare_bits(sig_of(e))), "sig.*base64"),
    "base64 of a number": (lambda e: {**e, "payload": 5}, "payload.*base64"),
    "a key id of text": (lambda e: sig(e, keyid="[red]"), "keyid"),
    "a short signature": (lambda e: sig(e, sig=b64(bytes(63))), "63 bytes"),
    "a zero signature": (lambda e: sig(e, sig=b64(bytes(64))), "a signature that is wrong"),
    "a payload that is too large": (lambda e: {**e, "payload": "A" * 2**17}, "at most"),
}


@pytest.mark.parametrize(("change", "words"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_or_edited_envelope_is_refused(change: Any, words: str, signed: Path) -> None:
    (signed / ATTESTATION_FILE).write_text(json.dumps(change(envelope_of(signed))))
    with pytest.raises(InvalidInput, match=words):
        verify_signature(signed, KEY.public, check)
    if words != "a signature that is wrong":
        # Nobody needs a key to see that.
        with pytest.raises(InvalidInput, match=words):
            claimed_key(signed)


def test_an_attestation_that_is_no_json(signed: Path) -> None:
    (signed / ATTESTATION_FILE).write_bytes(b'{"payload": 1, "payload": 1}')
    with pytest.raises(InvalidInput, match=ATTESTATION_FILE):
        verify_signature(signed, KEY.public, check)


def test_whatever_single_byte_changes_the_signed_words_stay_or_are_refused(signed: Path) -> None:
    """What still verifies says the same, but for blanks and for the key id, which decides nothing."""
    whole, random = (signed / ATTESTATION_FILE).read_bytes(), Random(0)
    original, accepted = Statement.from_bytes(whole, "envelope"), 0
    for _ in range(3000):
        changed = bytearray(whole)
        changed[random.randrange(len(whole))] = random.randrange(256)
        try:
            found = Statement.from_bytes(bytes(changed), "envelope")
        except InvalidInput:
            continue
        if KEY.public.verifies(found.signature, found.signed_bytes):
            assert (found.payload, found.signature) == (original.payload, original.signature)
            accepted += 1
    assert 0 < accepted < 300


def test_what_was_not_signed_is_not_read_and_does_not_write_to_the_terminal(signed: Path) -> None:
    """A file that says it has eight terabytes costs nothing."""
    (signed / "a\x1b[2Jb\nc").touch()
    os.truncate(signed / "a\x1b[2Jb\nc", 2**43)
    with pytest.raises(InvalidInput) as caught:
        verify_signature(signed, KEY.public, check)
    assert str(caught.value).isprintable()


STATEMENTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another release's id": (lambda s: s["predicate"].update(id="1" * 32), "about something else"),
    "another guarantee": (lambda s: s["predicate"]["guarantee"].update(epsilon=0.1), "about something else"),
    "another kind": (lambda s: s["predicate"].update(kind="model"), "about something else"),
    "another predicate": (lambda s: s.update(predicateType="https://slsa.dev/provenance/v1"), "predicateType"),
    "another statement": (lambda s: s.update(_type="https://in-toto.io/Statement/v0.1"), "another form"),
    "a field more": (lambda s: s.update(note="x"), "another form"),
    "a digest more": (lambda s: s["subject"][0]["digest"].update(md5="0"), "another form"),
    "a tool of other words": (lambda s: s["predicate"].update(tool="privmix [red]"), "tool"),
    "no predicate": (lambda s: s.pop("predicate"), "predicateType"),
    "a name twice": (lambda s: s["subject"].append(s["subject"][0]), "another form"),
    "no subject": (lambda s: s.pop("subject"), "other fields"),
}


@pytest.mark.parametrize(("change", "words"), STATEMENTS.values(), ids=STATEMENTS)
def test_a_true_signature_of_another_statement_is_refused(change: Any, words: str, signed: Path) -> None:
    signed_anew(signed, change)
    with pytest.raises(InvalidInput, match=words):
        verify_signature(signed, KEY.public, check)


def test_another_key_is_refused_whatever_the_envelope_calls_it(signed: Path) -> None:
    with refuses("key"):
        verify_signature(signed, OTHER.public, check)
    (signed / ATTESTATION_FILE).write_text(json.dumps(sig(envelope_of(signed), keyid=OTHER.public.key_id)))
    with refuses("attestation.dsse.json"):
        verify_signature(signed, OTHER.public, check)
    # Nor is a key named that did not sign, where the signature is right.
    with refuses("attestation.dsse.json keyid"):
        verify_signature(signed, KEY.public, check)


def test_signing_again_needs_overwrite(signed: Path) -> None:
    before = (signed / ATTESTATION_FILE).read_bytes()
    with pytest.raises(InvalidInput, match="signed already"):
        sign_folder(signed, OTHER, check)
    assert (signed / ATTESTATION_FILE).read_bytes() == before
    sign_folder(signed, OTHER, check, overwrite=True)
    assert verify_signature(signed, OTHER.public, check).key_id == OTHER.public.key_id


def test_what_is_refused_changes_or_holds_a_key_is_not_signed(tmp_path: Path) -> None:
    folder = make(tmp_path / "REL")

    def refuse(_: Path) -> Subject:
        raise InvalidInput("certificate epsilon", 1, "at least 2")

    def swap(_: Path) -> Subject:
        (folder / "README.md").write_text("# swapped")
        KEY.write(folder / "data" / "notes.txt")
        return SUBJECT

    for checked, words in (
        (refuse, "certificate epsilon"),
        (swap, "files that change"),
        (check, r"data/notes\.txt: got 'a private key'"),
    ):
        with pytest.raises(InvalidInput, match=words):
            sign_folder(folder, KEY, checked)
        assert not (folder / ATTESTATION_FILE).exists()


def test_a_full_disk_leaves_no_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path / "REL")
    monkeypatch.setattr("privmix.folders.os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match="No space left"):
        sign_folder(folder, KEY, check)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "certificate.json", "data"]


@pytest.mark.parametrize("passphrase", [None, b"correct horse"])
def test_key_files(passphrase: bytes | None, tmp_path: Path) -> None:
    private, public = tmp_path / "a.pem", tmp_path / "a.pub.pem"
    key = new_key_files(private, public, passphrase)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert (b"ENCRYPTED" in private.read_bytes()) == bool(passphrase)
    assert PrivateKey.read(private, passphrase).public.key_id == PublicKey.read(public).key_id == key.key_id
    with refuses("passphrase"):
        PrivateKey.read(private, None if passphrase else b"some")
    if passphrase:
        with refuses("key"):
            PrivateKey.read(private, b"wrong")
    private.chmod(0o640)
    with refuses("key"):
        PrivateKey.read(private, passphrase)
    with refuses("key file"):
        new_key_files(private, tmp_path / "b.pub.pem")
    with refuses("key file"):
        new_key_files(tmp_path / "b.pem", public)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pem", "a.pub.pem"]


def test_keys_of_other_kinds_are_refused(tmp_path: Path) -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    private = curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    mine = KEY._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "k.pem").touch(0o600)
    for content in (private, public, KEY.public.to_pem(), b"", b"\xff" * 99, mine[:60], mine.replace(b"M", b"A", 1)):
        (tmp_path / "k.pem").write_bytes(content)
        with pytest.raises(PrivmixError, match="Ed25519"):
            PrivateKey.read(tmp_path / "k.pem")
    for content in (private, public, mine, b"", b"\xff" * 99, KEY.public.to_pem()[:70], b"A" * 2**17):
        (tmp_path / "k.pem").write_bytes(content)
        with refuses("key"):
            PublicKey.read(tmp_path / "k.pem")
    with pytest.raises(StorageError, match="cannot read"):
        PublicKey.read(tmp_path / "none.pem")
    (tmp_path / "link.pem").symlink_to(tmp_path / "k.pem")
    for read in (PublicKey.read, PrivateKey.read):
        with refuses("key"):
            read(tmp_path / "link.pem")
