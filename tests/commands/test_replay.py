"""Replaying releases from Python: as they were read, on any engine, from a features' store."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.certificate.keys import new_key_files
from privmix.certificate.sealed_key import AuditorKey
from privmix.errors import InvalidInput, StorageError
from privmix.features.identity import Identity
from privmix.jobs import replay
from tests.jobs.persons_data import MOMENTS, frame, given
from tests.refusals import refuses

pytestmark = pytest.mark.filterwarnings(
    "ignore:delta", "ignore:features are plain", "ignore:`seed`", "ignore:the run's key"
)
UNTIL = "2099-01-01"
KEY = AuditorKey.new()
WISHES: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 4.0, "delta": 1e-3}
WISHES |= {"rows": 60, "clip_norm": 3.0, "design": "moments"}
OTHER_COUNT = "certificate.json: the private count is not the one that the key draws"


def own() -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(0).normal(size=(400, 6)).astype(np.float32), np.arange(400) % 2


def with_one_more() -> tuple[np.ndarray, np.ndarray]:
    x, y = own()
    return np.concatenate([x, x[:1]]), np.append(y, 0)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the keys of an auditor and of a signer."""
    monkeypatch.chdir(tmp_path)
    new_key_files(Path("aud.pem"), Path("aud.pub.pem"), key=KEY)
    new_key_files(Path("ana.pem"), Path("ana.pub.pem"))
    return tmp_path


def released(data: Any = None, **wishes: Any) -> pm.Release:
    asked = {**WISHES, "out": "REL", "replay_for": f"aud.pub.pem:until={UNTIL}", **wishes}
    return pm.release(own() if data is None else data, **asked)


def test_a_release_of_a_cluster_is_made_again_without_one(place: Path) -> None:
    pytest.importorskip("ray")
    released(engine="ray:workers=2", design=pm.designs.Poisson(mixup_degree=8))
    assert pm.replay("REL", own(), key=KEY).equal
    assert pm.replay("REL", own(), key=KEY, engine="ray:workers=2").equal


@pytest.mark.parametrize("kind", ["csv", "arrays"])
def test_persons_are_read_as_they_were(kind: str, place: Path) -> None:
    records, said = given(kind, place / kind, frame())
    released(records, **{**MOMENTS, **said})
    assert pm.replay("REL", records, key=KEY, **said, split="train").equal
    with refuses("person"):
        pm.replay("REL", records, key=KEY)
    if kind == "arrays":
        released(out="RECORDS")
        with refuses("person"):
            pm.replay("RECORDS", own(), key=KEY, person=np.arange(400))


def test_a_private_count_is_made_again(place: Path) -> None:
    released(private_count=True, delta=1e-6)
    assert pm.replay("REL", own(), key=KEY).equal
    assert OTHER_COUNT in pm.replay("REL", with_one_more(), key=KEY).found


def test_an_estimated_number_of_records_a_person_is_made_again(place: Path) -> None:
    whose = np.repeat(np.arange(100), 4)
    released(own(), person=whose, private_count=True, person_quantile=0.9, delta=1e-6, epsilon=40.0)
    assert pm.replay("REL", own(), person=whose, key=KEY).equal
    assert OTHER_COUNT in pm.replay("REL", own(), person=np.repeat(np.arange(200), 2), key=KEY).found


def test_the_same_certificate_is_written_with_a_record_more(place: Path) -> None:
    """But for what is noise, or pseudo-random: the root and the sealed key's hash."""
    one, other = (
        dict(released(data, records=400, out=f"REL{number}", seed=3).certificate)
        for number, data in enumerate((own(), with_one_more()))
    )
    assert {name for name in one if one[name] != other[name]} == {"id", "files", "replay", "content_sha256"}
    assert all(one["replay"][name] == other["replay"][name] for name in ("auditors", "together", "until"))
    sizes = {Path(f"REL{number}.sealed-key.json").stat().st_size for number in (0, 1)}
    assert len(sizes) == 1, "nor does the file tell how many there are"


class Rounding(Identity):
    """An extractor on another device."""

    def transform(self, inputs: Any) -> Any:
        return super().transform(inputs) * np.float32(1 + 2e-7)


def test_features_that_are_not_stable_come_from_the_store(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez("own.npz", x=own()[0], y=own()[1])
    released("own.npz", store="STORE")
    whole = pm.replay("REL", "own.npz", key=KEY, features_store="STORE", spot_checks=50)
    assert whole.equal
    assert (whole.spot_checks.records, whole.spot_checks.same_bits, whole.spot_checks.wrong) == (50, 50, 0)

    def elsewhere(*args: Any, **named: Any) -> Any:
        found = here(*args, **named)
        found.__class__ = Rounding
        return found

    here = replay.from_spec
    monkeypatch.setattr(replay, "from_spec", elsewhere)
    assert not pm.replay("REL", "own.npz", key=KEY).equal
    found = pm.replay("REL", "own.npz", key=KEY, features_store="STORE")
    assert found.equal
    assert found.spot_checks.same_bits < found.spot_checks.records == 256
    assert 0 < found.spot_checks.largest < 1e-5
    assert "that the certificate commits to" in found.warnings[0]


def test_a_store_of_other_features_is_found(place: Path) -> None:
    """Whether the certificate commits to it or not: features are made anew, and must be those of their records."""
    x, y = own()
    for name, features in (("own", x), ("other", x[::-1].copy()), ("less", x[:9])):
        np.savez(f"{name}.npz", x=features, y=y[: len(features)])
    released("own.npz")
    pm.release("other.npz", **WISHES, store="STORE", out="OTHER")
    found = pm.replay("REL", "own.npz", key=KEY, features_store="STORE")
    assert not found.equal
    assert not found.comparison.records
    released("other.npz", out="REL2", store="STORE2")
    forged = pm.replay("REL2", "own.npz", key=KEY, features_store="STORE2")
    assert forged.comparison.equal
    assert not forged.equal
    assert "do not match their records" in forged.found[-1]
    # Of another size.
    with refuses("features_store"):
        pm.replay("REL", "less.npz", key=KEY, features_store="STORE")


def test_options_that_make_no_sense_cost_nothing(place: Path) -> None:
    for wrong, what in (
        ({"replay_for": "aud.pub.pem"}, "replay_for"),
        ({"replay_for": "aud.pub.pem:until=soon"}, "replay_for until"),
        ({"replay_for": "aud.pub.pem:until=2020-01-01"}, "or a later day"),
        ({"replay_for": f"ana.pub.pem:until={UNTIL}"}, "X25519"),
        ({"replay_for": f"aud.pem:until={UNTIL}"}, "private one"),
        ({"out": None}, "out"),
    ):
        with pytest.raises(InvalidInput, match=what):
            released(**wrong)
        assert not Path("REL").exists()
        assert not Path(".REL.run").exists()
    with pytest.raises(StorageError, match="nobody"):
        released(replay_for=f"nobody.pub.pem:until={UNTIL}")


def test_without_key_or_sealed_key_nothing_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released()
    with refuses("key"):
        pm.replay("REL", own(), key=AuditorKey.new())
    with refuses("data"):
        pm.replay("REL", (own()[0][:, :5], own()[1]), key=KEY)
    shutil.move("REL.sealed-key.json", "kept")
    with pytest.raises(StorageError, match="cannot read REL"):
        pm.replay("REL", own(), key=KEY)
    assert pm.replay("REL", own(), key=KEY, sealed_key="kept").equal
    Path("kept").chmod(0o644)
    with refuses("sealed key"):
        pm.replay("REL", own(), key=KEY, sealed_key="kept")
    pm.release(own(), **WISHES, out="PLAIN")
    with refuses("release"):
        pm.replay("PLAIN", own(), key=KEY)

    class Later(replay.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2099, 1, 2, tzinfo=tz)

    # Its day ends it.
    Path("kept").chmod(0o600)
    monkeypatch.setattr(replay, "datetime", Later)
    with refuses("release"):
        pm.replay("REL", own(), key=KEY, sealed_key="kept")


def test_a_run_that_goes_on_keeps_its_auditors(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pm.jobs.release.ReleaseJob, "read", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            released()
    assert not Path("REL.sealed-key.json").exists()
    for other in ("aud.pub.pem:until=2098-01-01", None):
        with pytest.raises(InvalidInput, match="replay"):
            released(replay_for=other, resume=True)
    released(resume=True)
    assert pm.replay("REL", own(), key=KEY).equal


def test_other_records_are_not_replayed_with_a_count_of_the_refused_ones(place: Path) -> None:
    """They get a fresh key, which drew no count: nothing could make the count again."""

    def write(last: str) -> None:
        rows = [f"{value:.3f},{'yes' if value > 0 else 'no'}" for value in own()[0][:, 0]]
        Path("own.csv").write_text("\n".join(["a,label", *rows[:-1], f"0.5,{last}"]) + "\n")

    ledger = "sqlite:///ledger.db"
    pm.Ledger.create(ledger).add_dataset("own", epsilon=20.0, delta=1e-3)
    wishes: dict[str, Any] = {"private_count": True, "delta": 1e-6, "classes": ["yes", "no"]}
    wishes |= {"ledger": ledger, "dataset": "own"}
    alone: dict[str, Any] = {"out": "NONE", "replay_for": None}
    write("yess")
    for more in ({}, alone):
        with refuses("label"):
            released("own.csv", **wishes, **more)
    write("yes")
    with refuses("resume"):
        released("own.csv", **wishes, resume=True)
    assert not Path("REL").exists()
    # Without auditors they take the place of the refused ones.
    assert released("own.csv", **wishes, **alone, resume=True)


def test_a_statement_of_an_earlier_version_is_refused(place: Path) -> None:
    """It said that a sealed key was destroyed: no report repeats what nothing shows."""
    released()
    Path("REL", "replay-ended.dsse.json").write_text("{}")
    for use in (
        lambda: pm.verify("REL"),
        lambda: pm.replay("REL", own(), key=KEY),
        lambda: pm.load("REL").save("COPY"),
    ):
        with pytest.raises(InvalidInput, match=r"files: got .*replay-ended.dsse.json.*: delete it"):
            use()
    assert "it exists" in repr(pm.inspect("REL"))
