"""Verification of trained models: true ones hold, and whatever is edited is named."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file as load_tensors
from safetensors.numpy import save as save_tensors

from privmix.accounting import Adjacency
from privmix.data.overlap import PUBLISHED
from privmix.errors import InvalidInput, PrivmixError
from privmix.mechanisms.streams import SecretStreams
from privmix.training.certificate import public_text
from privmix.training.config import TrainingConfig
from privmix.training.plan import TrainingPlan
from privmix.training.public.config import WarmUpConfig
from privmix.training.trained import TrainedModel, load_trained
from privmix.training.verify import verify_trained
from tests.hostile.corpus import certify
from tests.refusals import refuses, refuses_any_change
from tests.training.runs import config_of, job_of, private, public

Content = dict[str, Any]


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    return job_of().run(private(), streams=SecretStreams.from_seed(0))


@pytest.fixture
def folder(model: TrainedModel, tmp_path: Path) -> Path:
    model.write(tmp_path)
    return tmp_path


def edit(folder: Path, change: Callable[[Content], object]) -> None:
    """Change the certificate, as a person would who knows how it is hashed; the card, which follows from it, goes."""
    (folder / "MODEL_CARD.md").unlink(missing_ok=True)
    certify(folder, change)


def guarantee(**changes: object) -> Callable[[Content], object]:
    return lambda content: content["guarantee"].update(changes)


def asked(epsilon: object) -> Callable[[Content], object]:
    return lambda content: (content["plan"].update(epsilon=epsilon), content["settings"].update(epsilon=epsilon))


WARM = {"scenario": "warm", "warm_up": WarmUpConfig(epochs=1)}
TRAININGS: dict[str, dict[str, Any]] = {
    "linear": {},
    "wrn-10-1": {"model": "wrn-10-1", "epochs": 0.2},
    "replace one": {"adjacency": Adjacency.REPLACE_ONE},
    "microbatches": {"microbatch_size": 4},
    "mixes": {"microbatch_size": 4, "microbatch_mixes": 2, "microbatch_keep": False},
    "warm": WARM,
    "declared": {},
    "secret": {},
    "without steps": {**WARM, "epsilon": 0.0},
}


@pytest.mark.parametrize("name", TRAININGS)
def test_what_training_writes_holds(name: str, tmp_path: Path) -> None:
    config = config_of(**TRAININGS[name])
    given = {} if config.scenario == "cold" else {"public": public()}
    streams = None if name == "secret" else SecretStreams.from_seed(0)
    job = job_of(config, records_declared=name == "declared", **given)
    made = job.run(None if name == "without steps" else private(), streams=streams)
    made.write(tmp_path)
    found = verify_trained(tmp_path)
    guarantee = made.certificate["guarantee"]
    assert found.recomputed_epsilon == found.epsilon == guarantee["epsilon"] <= 8.0
    assert (found.delta, found.adjacency) == (1e-3, guarantee["adjacency"])
    assert found.id == made.certificate.id
    # A seed hides nothing where nothing is to be hidden.
    assert len(found.warnings) == (0 if name in ("secret", "without steps") else 1)
    assert (found.epsilon == 0) is (name == "without steps")


def noise(factor: float, *, plan: bool = True, event: bool = True) -> Callable[[Content], object]:

    def change(content: Content) -> None:
        before = content["plan"]["noise_multiplier"]
        if plan:
            content["plan"]["noise_multiplier"] *= factor
        if event:
            text = json.dumps(content["event"]).replace(str(before), str(factor * before))
            assert json.loads(text) != content["event"]
            content["event"] = json.loads(text)

    return change


# Fields more, texts and numbers in every place: tests/releases/test_nothing_free.py.
EDITS: dict[str, tuple[Callable[[Content], object], str]] = {
    "a smaller epsilon": (guarantee(epsilon=0.1), "certificate epsilon: "),
    "a negative epsilon": (guarantee(epsilon=-1), "certificate guarantee epsilon: "),
    "another delta": (guarantee(delta=1e-9), "certificate delta"),
    "another adjacency": (guarantee(adjacency="replace_one"), "certificate adjacency"),
    "another accountant": (guarantee(accountant="rdp"), "certificate accountant"),
    "no bound": (guarantee(is_upper_bound=1), "certificate guarantee is_upper_bound"),
    "less asked for": (asked(1.0), "certificate epsilon.*which was asked for"),
    "nothing asked for": (asked(None), "epsilon"),
    "less noise in the plan": (noise(0.5, event=False), "certificate event"),
    "a cheaper event": (noise(2, plan=False), "certificate event"),
    "fewer steps": (lambda content: content["plan"].update(steps=1), "certificate event"),
    "less noise in both": (noise(0.5), "certificate epsilon: "),
    "a plan of other fields": (lambda content: content["plan"].pop("steps"), "plan"),
    "no plan": (lambda content: content.pop("plan"), "plan.*exactly its fields"),
    "a setting that is not used": (lambda content: content["settings"].update(microbatch_keep=True), "microbatch_keep"),
    "other settings": (lambda content: content["settings"].update(batch_size=5), "certificate settings batch_size"),
    "a hidden seed": (lambda content: content.update(insecure_seed=False), "certificate warnings"),
    "a warning removed": (lambda content: content.update(warnings=[]), "certificate warnings"),
    "a promise added": (lambda content: content["statements"].append("Perfect."), "certificate statements"),
    "a caveat removed": (lambda content: content["statements"].pop(), "certificate statements"),
    "an answer bettered": (lambda content: content["assessment"][1].update(holds="All."), "certificate assessment"),
    "no assessment": (lambda content: content.pop("assessment"), "assessment.*its fields"),
    "public data hidden": (lambda content: content.update(public_data={"public": "0" * 64}), "certificate statements"),
    "another version": (lambda content: content.update(schema_version=1), "schema_version"),
    "no steps alone": (lambda content: content["plan"].update(steps=0), "noise_multiplier, .*epsilon"),
    "no epsilon alone": (lambda content: content["plan"].update(epsilon=0.0), "epsilon"),
    "no noise alone": (lambda content: content["plan"].update(noise_multiplier=0.0), "noise_multiplier"),
    "other weights": (lambda content: content["files"][0].update(sha256="0" * 64), r"weights\.safetensors"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_certificate_that_was_edited_and_hashed_anew_is_refused(name: str, folder: Path) -> None:
    change, named = EDITS[name]
    edit(folder, change)
    with pytest.raises(InvalidInput, match=named):
        verify_trained(folder)


@pytest.mark.parametrize("epsilon", [0.0, 8.0])
def test_certificates_of_before_public_data_were_said_to_be_compared_hold(epsilon: float, tmp_path: Path) -> None:
    config = config_of(**WARM, epsilon=epsilon)
    records, streams = (private() if epsilon else None), SecretStreams.from_seed(0)
    job_of(config, public=public()).run(records, streams=streams).write(tmp_path)

    def before(content: Content) -> None:
        plan = TrainingPlan.from_dict(content["plan"])
        assert (PUBLISHED in content["statements"]) == (epsilon > 0)
        assert ("not compared with private records" in content["statements"][0]) == (epsilon == 0)
        old = public_text(plan, content["public_data"], content["insecure_seed"], "none", before=True)
        assert old["statements"] != content["statements"]
        content.update(old)

    verify_trained(tmp_path)
    edit(tmp_path, before)
    verify_trained(tmp_path)
    edit(tmp_path, lambda content: content["statements"].pop())
    with refuses("certificate statements"):
        verify_trained(tmp_path)


def test_a_trained_model_is_not_passed_off_as_one_of_public_data(folder: Path) -> None:
    """Whoever writes a whole new certificate must name public data, and no part of it goes alone."""

    def without_steps(content: Content) -> None:
        content["plan"].update(steps=0, noise_multiplier=0.0, epsilon=0.0)
        content["settings"].update(epsilon=0.0)
        content["event"] = {"kind": "bounded", "epsilon": 0.0, "delta": 0.0, "adjacency": "add_remove"}
        content["guarantee"].update(epsilon=0.0)
        content.update(public_text(TrainingPlan.from_dict(content["plan"]), content["public_data"], True, "none"))

    edit(folder, without_steps)
    with refuses("certificate plan steps"):
        verify_trained(folder)


def test_certificates_that_name_a_strategy_of_earlier_versions_hold(folder: Path) -> None:
    edit(folder, lambda content: content["settings"]["execution"].update(strategy="ghost"))
    verify_trained(folder)
    settings = load_trained(folder).certificate["settings"]
    assert TrainingConfig.from_settings(settings).execution.strategy == "auto"
    edit(folder, lambda content: content["settings"]["execution"].update(strategy="ghosts"))
    with refuses("model settings execution strategy"):
        verify_trained(folder)


def test_a_larger_epsilon_than_the_plan_costs_holds(folder: Path) -> None:
    """Whoever states more than was spent takes nothing from anybody."""
    edit(folder, lambda content: content["guarantee"].update(epsilon=content["plan"]["epsilon"]))
    found = verify_trained(folder)
    assert found.recomputed_epsilon <= found.epsilon == 8.0


def new_weights(make: Callable[[bytes, dict[str, np.ndarray]], bytes]) -> Callable[[Path], None]:
    """Other weights, made of the file and its arrays, with a certificate that is about them."""

    def change(folder: Path) -> None:
        file = folder / "weights.safetensors"
        content = make(file.read_bytes(), load_tensors(file))
        file.write_bytes(content)
        edit(folder, lambda found: found["files"][0].update(sha256=hashlib.sha256(content).hexdigest()))

    return change


def spaced(content: bytes, arrays: dict[str, np.ndarray]) -> bytes:
    size = int.from_bytes(content[:8], "little")
    return (size + 64).to_bytes(8, "little") + content[8 : 8 + size] + b" " * 64 + content[8 + size :]


def first_is_nan(array: np.ndarray) -> np.ndarray:
    array.flat[0] = np.nan
    return array


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a hidden file": (lambda folder: (folder / ".raw").write_text("1"), r"\.raw"),
    "a folder": (lambda folder: (folder / "more").mkdir(), "more"),
    "spaces in the header": (new_weights(spaced), "header"),
    "a note in the header": (new_weights(lambda _, arrays: save_tensors(arrays, {"note": "secret"})), "safetensors"),
    "wider numbers": (
        new_weights(lambda _, arrays: save_tensors({name: array.astype(float) for name, array in arrays.items()})),
        "type|shapes",
    ),
    "no numbers": (
        new_weights(lambda _, arrays: save_tensors({name: first_is_nan(array) for name, array in arrays.items()})),
        "finite",
    ),
    "another input": (
        lambda folder: edit(folder, lambda c: c["settings"].update(input_shape=[64])),
        r"input_shape|model\.json",
    ),
    "a name that is none": (lambda folder: edit(folder, lambda c: c.update(id="../x")), "certificate id"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_whatever_belongs_to_no_model_is_refused(name: str, folder: Path) -> None:
    verify_trained(folder)
    change, message = FOLDERS[name]
    change(folder)
    with pytest.raises(PrivmixError, match=message):
        verify_trained(folder)


def test_a_model_has_the_card_of_its_certificate(folder: Path) -> None:
    """Models of earlier builds have none, and hold."""
    card = folder / "MODEL_CARD.md"
    assert "A model trained with differential privacy" in card.read_text()
    verify_trained(folder)
    card.write_text(card.read_text().replace("epsilon:", "epsilon: 0 #"))
    with refuses("MODEL_CARD.md"):
        verify_trained(folder)
    card.unlink()
    verify_trained(folder)


def test_any_byte_changed_added_or_taken_in_any_file_is_refused(folder: Path) -> None:
    refuses_any_change(folder, verify_trained, files=4)
    assert len(verify_trained(folder).unchecked) >= 4
