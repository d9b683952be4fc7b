"""Sharpness of a trained model: on public data, and on no other."""

import json
from pathlib import Path

import numpy as np
import pytest

import privmix as pm
from privmix.research.curvature.hessian import curvature
from privmix.research.curvature.job import sharpness
from tests.cli.helpers import privmix
from tests.refusals import refuses
from tests.training.runs import digits, public


@pytest.fixture
def folder(own_folder: None) -> None:
    """A model, its public data, and its private ones, in the current folder."""
    for name, (start, count) in {"public": (1000, 40), "own": (0, 200), "other": (1200, 40)}.items():
        x, y = digits(start, count)
        np.savez(f"{name}.npz", x=x.reshape(-1, 8, 8), y=y)
    warm = {"scenario": "warm", "public": "public.npz", "warm_up": "sam:epochs=2"}
    pm.train("own.npz", epsilon=8.0, delta=1e-3, classes=10, epochs=1, out=Path("MODEL"), **warm)


def test_on_public_data_and_on_no_other(folder: None) -> None:
    found = sharpness("MODEL", "public.npz")
    network = pm.load("MODEL").classifier.network.eval()  # type: ignore[union-attr]
    assert found.figures == curvature(network, public())
    assert (found.records, found.named) == (40, "public")
    said = privmix("sharpness", "MODEL", "--public", "public.npz", "--json")
    assert json.loads(said.out) == found.to_dict()
    assert "on 40 public records" in privmix("sharpness", "MODEL", "--public", "public.npz", "--probes", "2").out
    for data in ("own.npz", "other.npz"):
        with refuses("public"):
            sharpness("MODEL", data)
    refused = privmix("sharpness", "MODEL", "--public", "own.npz")
    assert (refused.code, refused.out) == (2, "")
    assert "--ledger: private records would show in it" in refused.err


def test_other_data_need_a_ledger_that_does_not_know_them(folder: None) -> None:
    ledger = "sqlite:///l.db"
    asked = ("--ledger", ledger, "--dataset", "d")
    assert privmix("ledger", "init", *asked, "--epsilon", "9", "--delta", "1e-3").code == 0
    # It would recognise nothing.
    with refuses("ledger"):
        sharpness("MODEL", "own.npz", ledger=ledger)
    missing = privmix("sharpness", "MODEL", "--public", "own.npz", "--ledger", "sqlite:///none.db")
    assert missing.err.startswith("error: --ledger: got 'none.db'")
    pm.release("own.npz", epsilon=1.0, delta=1e-5, classes=10, design="moments", ledger=ledger, dataset="d")
    with refuses("public"):
        sharpness("MODEL", "own.npz", ledger=ledger)
    found = sharpness("MODEL", "other.npz", ledger=ledger, iterations=8, probes=2)
    assert found.named is None
    assert found.figures.eigenvalues[0] > 0
