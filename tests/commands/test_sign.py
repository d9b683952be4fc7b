"""Keys, signatures and what verify says of them, on the command line: releases, trained models, fitted models."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

import privmix as pm
from privmix.mechanisms.streams import SecretStreams
from tests.cli.helpers import privmix
from tests.refusals import refuses
from tests.releases.test_folder import write
from tests.training.runs import job_of, private

KINDS = ("release", "model", "fitted-model")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("folders")
    write(root / "release", rows=200)
    assert privmix("fit", root / "release", "--out", root / "fitted-model").code == 0
    (root / "model").mkdir()
    job_of().run(private(), streams=SecretStreams.from_seed(0)).write(root / "model")
    return {kind: root / kind for kind in KINDS}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("keys")
    for name in ("ana", "bo"):
        made = privmix("keygen", root / name).passed()
        assert "key id: " in made.out
    assert stat.S_IMODE((root / "ana.pem").stat().st_mode) == 0o600
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_sign_and_verify(kind: str, folders: dict[str, Path], keys: Path) -> None:
    folder = str(folders[kind])
    plain = privmix("verify", folder).passed()
    assert "signature: none" in plain.out
    assert privmix("verify", folder, "--key", keys / "ana.pub.pem").code == 2

    privmix("sign", folder, "--key", keys / "ana.pem").passed()
    named = privmix("verify", folder)
    assert (named.code, "not checked (give --key)" in named.out) == (0, True)
    checked = privmix("verify", folder, "--key", keys / "ana.pub.pem").passed()
    assert "of every file, by key" in checked.out
    as_json = json.loads(privmix("verify", folder, "--key", keys / "ana.pub.pem", "--json").out)
    assert as_json["signature"]["checked"] is True
    assert as_json["signature"]["key_id"] in checked.out

    other = privmix("verify", folder, "--key", keys / "bo.pub.pem")
    assert (other.code, "the key that signed" in other.err, other.out) == (2, True, "")
    again = privmix("sign", folder, "--key", keys / "bo.pem")
    assert (again.code, "signed already" in again.err) == (2, True)
    assert privmix("sign", folder, "--key", keys / "bo.pem", "--overwrite").code == 0
    assert privmix("verify", folder, "--key", keys / "bo.pub.pem").code == 0

    (folders[kind] / "more.txt").write_text("more")
    added = privmix("verify", folder, "--key", keys / "bo.pub.pem")
    assert (added.code, "more.txt" in added.err) == (2, True)


def test_private_keys_stay_out_of_folders_for_others(folders: dict[str, Path], keys: Path) -> None:
    inside = privmix("keygen", folders["model"] / "ana")
    assert (inside.code, "outside of release and model folders" in inside.err) == (2, True)
    hidden = folders["model"] / "ana.pem"
    hidden.write_bytes((keys / "ana.pem").read_bytes())
    try:
        used = privmix("sign", folders["model"], "--key", hidden)
        assert (used.code, "outside of the folder" in used.err) == (2, True)
    finally:
        hidden.unlink()


def test_passphrases(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVMIX_KEY_PASSPHRASE", "correct horse")
    assert privmix("keygen", tmp_path / "cy", "--passphrase").code == 0
    assert "ENCRYPTED" in (tmp_path / "cy.pem").read_text()
    line = ("sign", str(folders["release"]), "--overwrite", "--key", str(tmp_path / "cy.pem"))
    (folders["release"] / "more.txt").unlink(missing_ok=True)
    assert privmix(*line).code == 0
    monkeypatch.setenv("PRIVMIX_KEY_PASSPHRASE", "wrong")
    wrong = privmix(*line)
    assert (wrong.code, "wrong" in wrong.err.split("passphrase")[0]) == (2, False)
    monkeypatch.delenv("PRIVMIX_KEY_PASSPHRASE")
    asked = privmix(*line)
    assert (asked.code, "PRIVMIX_KEY_PASSPHRASE" in asked.err) == (2, True)


def test_python_makes_keys_and_signs(folders: dict[str, Path], tmp_path: Path) -> None:
    made = pm.keygen(tmp_path / "di", passphrase=b"correct horse")
    with refuses("passphrase"):
        pm.keygen(tmp_path / "ed", passphrase=True)
    with refuses("passphrase"):
        pm.sign(folders["release"], made.private, overwrite=True)
    (folders["release"] / "more.txt").unlink(missing_ok=True)
    signed = pm.sign(folders["release"], made.private, passphrase=b"correct horse", overwrite=True)
    checked = pm.verify(folders["release"], key=made.public)
    assert checked.to_dict()["signature"] == {"key_id": signed.key_id, "checked": True}
    assert signed.key_id == made.key_id
