"""Replaying on the command line: what is printed, exit codes, and what every other verb says of a sealed key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import Outcome, privmix
from tests.cli.training import certificate

UNTIL = "2099-01-01"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: two auditors, records, and a release of them for one of these."""
    monkeypatch.chdir(tmp_path)
    for name in ("aud", "bo"):
        made = privmix("keygen", name, "--auditor").passed()
        assert "for the publisher of the release" in made.out
    random = np.random.default_rng(0)
    x, y = random.normal(size=(300, 5)).astype(np.float32), random.integers(0, 2, 300)
    np.savez("own.npz", x=x, y=y)
    x[11] += 1
    np.savez("other.npz", x=x, y=y)
    made = release("REL", f"--replay-for=aud.pub.pem:until={UNTIL}").passed()
    assert "the run's key is not destroyed but sealed for the auditor whose key is" in made.err
    assert "sealed key: REL.sealed-key.json, for the auditor" in made.out
    return tmp_path


def release(out: str, *more: str) -> Outcome:
    given = ["--data=own.npz", "--classes=2", "--features=identity", "--design=moments", "--rows=40", "--epsilon=4"]
    return privmix("release", *given, "--delta=1e-4", "--clip-norm=3", f"--out={out}", *more)


def test_equal_or_where_not(place: Path) -> None:
    line = ("replay", "REL", "--key=aud.pem")
    assert privmix(*line, "--data=own.npz").passed().out.startswith("PASS: the records are those")
    assert privmix(*line, "--data=own.npz", "--json").json()["equal"] is True
    other = privmix(*line, "--data=other.npz")
    assert other.code == 4, "as where an audit refutes"
    assert other.out.startswith("FAIL: ")
    assert "the records are not those" in other.out


def test_everything_says_whether_a_key_exists_whose_and_until_when(place: Path) -> None:
    key_id = certificate("REL")["replay"]["auditors"][0][:16]
    privmix("report", "REL", "--out", "page.html").passed()
    pages = [privmix(verb, "REL").out for verb in ("verify", "inspect")]
    pages += [Path(name).read_text() for name in ("REL/README.md", "REL/certificate.json", "page.html")]
    assert all(key_id in text and UNTIL in text for text in pages)
    warned = privmix("verify", "REL").err
    assert f"sealed for the auditor whose key is {key_id}, to be destroyed by the end of {UNTIL}" in warned
    told = privmix("verify", "REL", "--json").json()
    assert told["sealed_key"]["until"] == UNTIL
    assert "what the auditor whose key is" in " ".join(told["unchecked"])
    # Of a release whose key was destroyed none of this is said.
    release("PLAIN").passed()
    pages = [privmix(verb, "PLAIN").out for verb in ("verify", "inspect")]
    assert not any("sealed" in text for text in (*pages, Path("PLAIN/README.md").read_text()))
    assert "sealed_key" not in privmix("verify", "PLAIN", "--json").json()


def test_a_day_that_is_past_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privmix.certificate import sealed_key

    class Later(sealed_key.datetime):
        @classmethod
        def now(cls, tz: object = None) -> Later:  # type: ignore[override]
            return cls(2100, 1, 1)

    monkeypatch.setattr(sealed_key, "datetime", Later)
    for verb in ("verify", "inspect"):
        assert f"{UNTIL}, the day of its end, is past" in privmix(verb, "REL").out
