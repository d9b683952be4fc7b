"""Keys, signatures and what verify says of them, on the command line: releases, trained models, fitted models."""

import stat
from pathlib import Path

import pytest

import privmix as pm
from privmix.mechanisms.streams import SecretStreams
from tests.cli.helpers import privmix, refused
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
        assert "key id: " in privmix("keygen", root / name).passed().out
    assert stat.S_IMODE((root / "ana.pem").stat().st_mode) == 0o600
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_sign_and_verify(kind: str, folders: dict[str, Path], keys: Path) -> None:
    folder, ana, bo = folders[kind], keys / "ana.pub.pem", keys / "bo.pub.pem"
    assert "signature: none" in privmix("verify", folder).passed().out
    assert privmix("verify", folder, "--key", ana).code == 2
    privmix("sign", folder, "--key", keys / "ana.pem").passed()
    assert "not checked (give --key)" in privmix("verify", folder).passed().out
    checked = privmix("verify", folder, "--key", ana).passed()
    assert "of every file, by key" in checked.out
    signature = privmix("verify", folder, "--key", ana, "--json").json()["signature"]
    assert (signature["checked"], signature["key_id"] in checked.out) == (True, True)
    refused(privmix("verify", folder, "--key", bo), "the key that signed")
    refused(privmix("sign", folder, "--key", keys / "bo.pem"), "signed already")
    privmix("sign", folder, "--key", keys / "bo.pem", "--overwrite").passed()
    privmix("verify", folder, "--key", bo).passed()
    (folder / "more.txt").write_text("more")
    refused(privmix("verify", folder, "--key", bo), "more.txt")
    (folder / "more.txt").unlink()


def test_private_keys_stay_out_of_folders_for_others(folders: dict[str, Path], keys: Path) -> None:
    folder = folders["model"]
    refused(privmix("keygen", folder / "ana"), "outside of release and model folders")
    hidden = folder / "ana.pem"
    hidden.write_bytes((keys / "ana.pem").read_bytes())
    try:
        refused(privmix("sign", folder, "--key", hidden), "outside of the folder")
    finally:
        hidden.unlink()


def test_passphrases(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVMIX_KEY_PASSPHRASE", "correct horse")
    privmix("keygen", tmp_path / "cy", "--passphrase").passed()
    assert "ENCRYPTED" in (tmp_path / "cy.pem").read_text()
    line = ("sign", folders["release"], "--overwrite", "--key", tmp_path / "cy.pem")
    privmix(*line).passed()
    monkeypatch.setenv("PRIVMIX_KEY_PASSPHRASE", "wrong")
    wrong = privmix(*line)
    assert (wrong.code, "wrong" in wrong.err.split("passphrase")[0]) == (2, False)
    monkeypatch.delenv("PRIVMIX_KEY_PASSPHRASE")
    refused(privmix(*line), "PRIVMIX_KEY_PASSPHRASE")


def test_python_makes_keys_and_signs(folders: dict[str, Path], tmp_path: Path) -> None:
    made = pm.keygen(tmp_path / "di", passphrase=b"correct horse")
    with refuses("passphrase"):
        pm.keygen(tmp_path / "ed", passphrase=True)
    with refuses("passphrase"):
        pm.sign(folders["release"], made.private, overwrite=True)
    signed = pm.sign(folders["release"], made.private, passphrase=b"correct horse", overwrite=True)
    checked = pm.verify(folders["release"], key=made.public)
    assert checked.to_dict()["signature"] == {"key_id": signed.key_id, "checked": True}
    assert signed.key_id == made.key_id
