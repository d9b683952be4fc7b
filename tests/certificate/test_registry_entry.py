"""Entries for the registry of deployments: valid by its published fields, made of the certificate, safe, and honest."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privmix as pm
from privmix.accounting import Adjacency, Composed, Event, Gaussian, PoissonSampled, Repeated, epsilon, gdp_epsilon
from privmix.accounting import epsilon_delta_curve as profile
from privmix.accounting.gdp import gdp_delta
from privmix.certificate.guarantee import FAITHFUL, Guarantee, as_gdp
from privmix.certificate.registry_entry import TO_STATE, as_yaml, missing, registry_entry
from tests.cli.helpers import privmix
from tests.refusals import refuses

yaml = pytest.importorskip("yaml")

TEXT, DATE = object(), object()
# Fields of registry.opendp.org: opendp/deployments-registry-data, schemas/deployments-schema.yaml, 2026-07-15. A
# tuple is a choice, a list that of texts; no other field is allowed.
FIELDS: dict[str, Any] = {
    "url_slug": TEXT,
    "status": (
        "Converted", "Draft", "Pending", "Changes Required", "Approved", "Approved (Update Requested)",
        "Approved (Pending)",
    ),
    "tier": (1, 2, 3),
    "deployment": {
        "basic": {
            "name": TEXT,
            "data_curators": [TEXT],
            "intended_use": TEXT,
            "data_product_type": (
                "Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API",
                "SQL queries",
            ),
            "data_product_region": TEXT,
            "description": TEXT,
            "publication_date": DATE,
        },
        "dp_variant": {
            "variant_name": ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
            "data_domain": TEXT,
            "unprotected_quantities": TEXT,
        },
        "privacy_loss": {
            "privacy_unit": TEXT,
            "privacy_unit_details": TEXT,
            "privacy_parameters": {"epsilon": float, "delta": float},
            "privacy_parameters_details": TEXT,
        },
        "deployment_model": {
            "model_name": ("Local", "Central", "Shuffle", "Federated", "Varies"),
            "model_name_details": TEXT,
            "actors": TEXT,
            "release_type": ("One release", "Many releases"),
            "release_type_details": TEXT,
            "data_source_type": ("Static", "Dynamic"),
            "data_source_type_details": TEXT,
            "access_type": ("Interactive", "Non-interactive"),
            "access_type_details": TEXT,
        },
        "accounting": {"post_processing": TEXT, "composition": TEXT},
        "implementation": {"preprocessing_and_hyperparameter_tuning": TEXT, "mechanisms": TEXT, "justification": TEXT},
        "administrative": {"notes": TEXT, "registry_authors": [TEXT]},
    },
}  # fmt: skip
ADD = Adjacency.ADD_REMOVE


def check(found: Any, fields: Any, place: str = "entry") -> None:
    """Every field of the third tier is there, of its kind, and no other."""
    if isinstance(fields, dict):
        assert set(found) == set(fields), place
        for name, one in fields.items():
            check(found[name], one, f"{place}.{name}")
    elif isinstance(fields, list):
        assert found, place
        assert all(isinstance(text, str) and text for text in found), place
    elif isinstance(fields, tuple):
        assert found in fields, place
    elif fields is DATE:
        datetime.date.fromisoformat(found)
    elif fields is float:
        assert isinstance(found, float), place
    else:
        assert isinstance(found, str), place
        assert found.strip() == found != "", place


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A release with its owner's words, and a model without."""
    root = tmp_path_factory.mktemp("registry")
    said = {"title": 'Digits: "eights" & more # 1', "owner": "St. Elsewhere", "purpose": "Reading post codes"}
    data = np.eye(300)[:, :9], np.arange(300) % 2
    given: dict[str, Any] = {"classes": 2, "features": "identity", "epsilon": 2.0, "delta": 1e-5}
    pm.release(data, out=root / "REL", design="moments", metadata={**said, "date": "2026-02-03"}, **given)
    pm.train(data, out=root / "MODEL", epochs=1, batch_size=100, **given)
    return {"release": root / "REL", "model": root / "MODEL"}


@pytest.mark.parametrize("kind", ["release", "model"])
def test_an_entry_of_the_third_tier(folders: Mapping[str, Path], kind: str) -> None:
    told = privmix("inspect", str(folders[kind]), "--registry")
    assert told.code == 0, told.err
    entry = yaml.safe_load(told.out)
    check(entry, FIELDS)
    assert entry["tier"] == 3
    parts = entry["deployment"]
    parameters = parts["privacy_loss"]["privacy_parameters"]
    assert 1.99 < parameters["epsilon"] <= 2
    assert parameters["delta"] == 1e-5
    assert "mu 0.5" in parts["privacy_loss"]["privacy_parameters_details"]
    wanted = ["deployment.basic.data_product_region"]
    if kind == "model":
        wanted = ["deployment.basic.data_curators", "deployment.basic.intended_use", *wanted]
        wanted.append("deployment.administrative.registry_authors")
        assert parts["basic"]["data_product_type"] == "Machine learning model"
    else:
        assert parts["basic"]["name"] == 'Digits: "eights" & more # 1'
        assert parts["basic"]["publication_date"] == "2026-02-03"
        assert entry["url_slug"] == "digits_eights_more_1"
    assert list(missing(entry)) == wanted
    assert all(place in told.err for place in wanted)
    as_json = json.loads(privmix("inspect", str(folders[kind]), "--registry", "--json").out)
    assert as_json.pop("to_state") == wanted
    assert as_json == json.loads(json.dumps(entry))


def test_what_is_not_protected_is_not_entered_as_protected(folders: Mapping[str, Path]) -> None:
    certificate = pm.load(folders["release"]).certificate
    content = certificate.to_dict()
    content["insecure_seed"] = True
    entry = registry_entry(replace(certificate, content=content))
    loss = entry["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {}
    assert loss["privacy_parameters_details"].startswith("The noise came from a seed")
    content["guarantee"] = {**content["guarantee"], "epsilon": None}
    with refuses("registry"):
        registry_entry(replace(certificate, content=content))


def test_a_strangers_words_stay_words() -> None:
    words = ["a: b", "- c", "*d", "# e", "'f'", '"g"', "h\\n", "\u2028i", "{j}", "yes", "{{ k }}", "<script>"]
    entry = {"texts": words, "deep": {text: text for text in words}, "numbers": {"a": 1e-05, "b": 1.5e-07, "c": 2.0}}
    assert yaml.safe_load(as_yaml(entry)) == entry
    assert as_yaml(entry).isascii()
    assert json.loads(json.dumps(entry)) == entry
    assert list(missing({"one": {"two": TO_STATE}, "three": [TO_STATE], "four": 1.0})) == ["one.two", "three"]


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(3.0),
        Repeated(PoissonSampled(0.01, Gaussian(0.8)), 400),
        Composed((Gaussian(6.0), Repeated(PoissonSampled(0.2, Gaussian(4.0)), 50))),
    ],
)
def test_mu_covers_the_curve_and_the_regret_says_how_loosely(event: Event) -> None:
    delta = 1e-5
    promise = Guarantee(epsilon(event, delta).epsilon, delta, event, ADD, exact=True)
    found = as_gdp(promise)
    assert found is not None
    for at in [0.013, 0.21, 0.77, 1.3, promise.epsilon, promise.epsilon * 1.2]:
        assert float(profile(event, [at], adjacency=ADD)[0]) <= max(gdp_delta(found.mu, at), delta) * (1 + 1e-6)
    assert gdp_epsilon(found.mu, delta) >= promise.epsilon * (1 - 1e-6)
    if isinstance(event, Gaussian):
        assert found.mu == pytest.approx(1 / 3, rel=2e-3)
        assert found.regret < 1e-3
    # A mechanism of few, rare and clear rows is none of Gaussian DP.
    assert found.faithful is (found.regret < FAITHFUL)
    assert isinstance(event, Repeated) is (found.regret > FAITHFUL)


def test_one_point_is_no_curve() -> None:
    promise = Guarantee(1.0, 1e-5, Gaussian(4.0), ADD, exact=False)
    assert as_gdp(promise) is None
    assert as_gdp(replace(promise, exact=True, delta=0.0)) is None
    assert as_gdp(replace(promise, exact=True, epsilon=float("inf"))) is None
