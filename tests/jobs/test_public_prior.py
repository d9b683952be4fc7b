"""Releases whose features are whitened by public data: what travels, what is said of them, and what is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.certificate.croissant import croissant
from privmix.data.overlap_rule import FLOOR, PUBLISHED
from privmix.features.whitened import Whitening
from privmix.jobs import release as release_job
from privmix.jobs.release import ReleaseJob
from privmix.plans.named import plan_from_dict
from privmix.releases.certificate import public_text
from privmix.releases.run import ReleaseRun
from tests.cli.helpers import privmix
from tests.hostile.corpus import certify
from tests.refusals import refuses

RNG = np.random.default_rng(0)
Y = np.repeat([0, 1], 150)
# Bright above or bright below.
X = (RNG.integers(0, 60, (300, 8, 8)) + 150 * (np.arange(8)[None, :, None] // 4 == Y[:, None, None])).astype(np.uint8)
OTHER = RNG.integers(0, 60, (90, 8, 8)) + 100 * (np.arange(8)[None, :, None] // 4 == (np.arange(90) % 2)[:, None, None])
PUBLIC: Any = (OTHER.astype(np.uint8), np.arange(90) % 2)
WISHES: dict[str, Any] = {"classes": 2, "epsilon": 4, "delta": 1e-4, "design": pm.designs.Moments()}
DRAWN: dict[str, Any] = {"public": "procedural:letters", "public_records": 130}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release whose features were whitened by letters."""
    place = tmp_path_factory.mktemp("whitened") / "REL"
    pm.release((X, Y), **WISHES, **DRAWN, out=place)
    return place


def test_the_whitening_travels_and_models_take_raw_inputs(release: Path, tmp_path: Path) -> None:
    assert pm.verify(release).held.epsilon <= 4
    assert (release / "extractor.safetensors").is_file()
    loaded = pm.load(release)
    loaded.save(tmp_path / "COPY")
    model = pm.fit(pm.load(tmp_path / "COPY"))
    assert model.score(X, Y) > 0.95
    model.save(tmp_path / "M")
    again = pm.load(tmp_path / "M")
    np.testing.assert_array_equal(again.features(X), model.features(X))
    np.testing.assert_array_equal(again.features(X[3:4]), model.features(X)[3:4])
    assert pm.evaluate(tmp_path / "M", (X, Y)).accuracy == model.score(X, Y)


def test_certificate_card_and_inspect_say_that_there_was_a_prior(release: Path) -> None:
    certificate = pm.load(release).certificate
    (said,) = [text for text in certificate["statements"] if text.startswith("Procedural prior")]
    assert certificate["extractor"]["options"]["public"]["sha256"][:16] in said
    assert said in (release / "README.md").read_text()
    assert "procedural:letters" in privmix("inspect", str(release), "--full").out
    listed = [item["file"] for item in certificate["files"]]
    assert listed[-1] == "extractor.safetensors"


def test_another_whitening_in_the_folder_is_refused(release: Path, tmp_path: Path) -> None:
    release = Path(shutil.copytree(release, tmp_path / "REL"))
    file = release / "extractor.safetensors"
    content = file.read_bytes()
    for odd in (content[:-4] + b"\x00\x00\x80\x3f", content + b"\x00", content[:-1]):
        file.write_bytes(odd)
        for use in (pm.verify, pm.load):
            with refuses("extractor.safetensors"):
                use(release)
    file.unlink()
    with pytest.raises(pm.PrivmixError):
        pm.verify(release)


def test_given_public_data_whiten_too_and_are_called_the_owners_word(tmp_path: Path) -> None:
    np.savez(tmp_path / "public.npz", x=PUBLIC[0], y=PUBLIC[1])
    found = [pm.release((X, Y), **WISHES, public=data) for data in (PUBLIC, tmp_path / "public.npz")]
    for one in found:
        assert pm.fit(one).score(X, Y) > 0.95
        assert any(text.startswith("Public data: ") for text in one.certificate["statements"])
    # The same records: the same hash, and the same bits.
    assert found[0].certificate["extractor"] == found[1].certificate["extractor"]
    fewer = pm.plan((X, Y), **WISHES, public=PUBLIC, public_records=40)
    assert fewer.plan.dim == 64
    two_stages = {**WISHES, "design": "two-stage"}
    whitened, plain = (pm.plan((X, Y), **two_stages, **given).plan for given in ({"public": PUBLIC}, {}))
    assert (whitened.whitening, plain.whitening) == (0, 0.75)


def test_plans_of_a_prior_read_no_private_record_and_no_public_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> None:
        raise AssertionError("something was read")

    monkeypatch.setattr(release_job.ReleaseJob, "extractor", property(forbidden))
    planned = pm.plan((X, Y), **WISHES, **DRAWN)
    assert planned.plan.dim == 64


def test_private_data_are_no_public_data(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=X, y=Y)
    (tmp_path / "copy.npz").write_bytes((tmp_path / "own.npz").read_bytes())
    own = tmp_path / "own.npz"
    for public in (own, tmp_path / "copy.npz"):
        with refuses("public"):
            pm.release(own, **WISHES, public=str(public))
    # In another format, only its records show it, once they are paid for.
    place = tmp_path / "REL"
    with refuses("public"):
        pm.release(own, **WISHES, public=(X.astype(np.float32)[:120] / 255, Y[:120]), out=place)
    assert not place.exists()


def test_whether_there_is_a_release_tells_of_no_single_record(tmp_path: Path) -> None:
    """Ten public records, one of them Alice's: published without her and with her, byte for byte the same plan."""
    public = np.concatenate([PUBLIC[0][:9], X[:1]]), np.arange(10) % 2
    found = [
        pm.release((X[rows], Y[rows]), **WISHES, public=public, records=299, out=tmp_path / name)
        for name, rows in (("D", slice(1, None)), ("E", slice(None)))
    ]
    assert found[0].certificate["plan"] == found[1].certificate["plan"]


def test_certificates_say_that_publication_passed_a_comparison(release: Path, tmp_path: Path) -> None:
    """Where there were public data to compare; those of before say nothing of it and hold as they are."""
    pm.release((X, Y), **WISHES, public=PUBLIC, out=tmp_path / "REL")
    statements = pm.load(tmp_path / "REL").certificate["statements"]
    assert PUBLISHED in statements
    assert f"at least {FLOOR} different ones" in PUBLISHED
    assert "given that it is" in PUBLISHED
    # A program made these: nothing was compared.
    assert PUBLISHED not in pm.load(release).certificate["statements"]

    def before(content: dict[str, Any]) -> None:
        facts = content["insecure_seed"], content["in_ledger"], content["extractor"], content.get("choice")
        content |= public_text(plan_from_dict(content["plan"]), *facts, before=True)

    certify(tmp_path / "REL", before)
    assert PUBLISHED not in pm.load(tmp_path / "REL").certificate["statements"]
    write_beside(tmp_path / "REL")
    assert pm.verify(tmp_path / "REL").held.epsilon <= 4
    certify(tmp_path / "REL", lambda content: content["statements"].append("Another."))
    write_beside(tmp_path / "REL")
    with refuses("certificate statements"):
        pm.verify(tmp_path / "REL")


def write_beside(folder: Path) -> None:
    """Card and metadata that follow from the certificate."""
    content = (folder / "certificate.json").read_bytes()
    certificate = json.loads(content)
    (folder / "croissant.json").write_bytes(croissant(certificate, hashlib.sha256(content).hexdigest()))


def test_what_does_not_go_together_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    odd: list[tuple[dict[str, Any], str]] = [
        ({"public": "procedural:faces"}, r"procedural: got 'faces'"),
        ({"public": "procedural:digits", "public_classes": 3}, "public_classes"),
        ({"public_records": 10}, "public_records"),
        ({"public": "procedural:digits", "public_records": 1}, "public_records"),
        ({"public": (np.zeros((9, 4, 4), np.uint8), np.zeros(9, int))}, "public"),
        ({"public": str(tmp_path / "none.npz")}, "public"),
    ]
    for settings, message in odd:
        with pytest.raises(pm.PrivmixError, match=message):
            pm.plan((X, Y), **WISHES, **settings)
    with refuses("shape of images for procedural:digits"):
        pm.plan((X.reshape(300, 64), Y), **WISHES, features="identity", public="procedural:digits")


def test_an_interrupted_run_goes_on_with_its_own_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another fit may differ in last bits, by threads or libraries: then nothing could go on what was paid for."""
    np.savez(tmp_path / "own.npz", x=X, y=Y)
    own, place = tmp_path / "own.npz", tmp_path / "REL"

    def killed(*_: Any, **__: Any) -> None:
        raise pm.StorageError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(ReleaseRun, "_write", killed)
        with pytest.raises(pm.StorageError):
            pm.release(own, **WISHES, **DRAWN, out=place)
    (kept,) = tmp_path.glob(".*.run/extractor.safetensors")
    fitted = kept.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Whitening, "fit", killed)
        with pytest.raises(pm.InvalidInput, match="public"):
            pm.release(own, **WISHES, **{**DRAWN, "public_records": 140}, out=place, resume=True)
        pm.release(own, **WISHES, **DRAWN, out=place, resume=True)
    assert (place / "extractor.safetensors").read_bytes() == fitted
    assert pm.verify(place).held.epsilon <= 4


def test_the_ledger_is_charged_after_public_data_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Public data that can't be used cost nothing."""
    charged: list[object] = []
    monkeypatch.setattr(ReleaseJob, "charge", lambda *args: charged.append(args))
    flat = np.zeros((9, 8, 8), np.uint8), np.arange(9) % 2
    with refuses("public records"):
        pm.release((X, Y), **WISHES, public=flat)
    assert not charged
