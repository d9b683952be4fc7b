"""Whatever is planted in a release or model, with all hashes made again, is refused by verification.

Every place of a certificate is given a long text, numbers and an object, every object an extra field, every array
random records. Designs that share a certificate reader are tried at every place once, else at their own places.
"""

import copy
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import privmix as pm
from privmix.errors import PrivmixError
from privmix.mechanisms.plan import LONGEST_NAME
from privmix.mechanisms.streams import SecretStreams
from privmix.releases.shards import arrays_bytes
from privmix.releases.verify import verify_release
from privmix.training.verify import verify_trained
from privmix.training.views.config import ViewConfig
from tests.refusals import refuses
from tests.releases.helpers import EVERY_DESIGN, design_name, make_plan, make_records, replant, write_release
from tests.training.runs import config_of, job_of, private, public

Json = Any
Path_ = tuple[str | int, ...]
RNG = np.random.default_rng(0)
PLANTS: dict[str, Callable[[], Json]] = {
    "text": lambda: "raw record " * 10_000,
    "numbers": lambda: RNG.random(300).tolist(),
    "object": lambda: {"record": RNG.random(100).tolist()},
}


def places(content: Json, at: Path_ = ()) -> Iterator[Path_]:
    """Every place of JSON values; of a list its first and last entries: the others are checked as these are."""
    if at:
        yield at
    if isinstance(content, dict):
        for name in content:
            yield from places(content[name], (*at, name))
    elif isinstance(content, list) and content:
        for index in sorted({0, len(content) - 1}):
            yield from places(content[index], (*at, index))


def get(content: Json, at: Path_) -> Json:
    return reduce(getitem, at, content)


def put(content: Json, at: Path_, value: Json) -> None:
    get(content, at[:-1])[at[-1]] = value


def planted(
    folder: Path,
    verify: Callable[[Path], object],
    plants: list[str],
    *,
    also: str | None = None,
    within: Collection[str] | None = None,
) -> list[str]:
    """Plant everywhere, or ``within`` parts of a certificate; return places that verification did not refuse."""
    honest = json.loads((folder / "certificate.json").read_text())
    beside = None if also is None else (folder / also).read_text()
    verify(folder)
    held: list[str] = []
    for at in places(honest):
        if at == ("content_sha256",) or (within is not None and at[0] not in within):
            continue
        value = get(honest, at)
        trials = [(name, PLANTS[name]()) for name in plants]
        if isinstance(value, dict):
            trials.append(("a field more", {**value, "note": PLANTS["text"]()}))
        for name, plant in trials:
            changed = copy.deepcopy(honest)
            put(changed, at, plant)
            if beside is not None and at[0] == "settings" and at[1:2] and at[1] in (model := json.loads(beside)):
                put(model, at[1:], plant)
                (folder / str(also)).write_text(json.dumps(model, indent=2) + "\n")
            replant(folder, changed)
            with suppress(PrivmixError):
                verify(folder)
                held.append(f"{name} at {'.'.join(map(str, at))}")
            if beside is not None:
                (folder / str(also)).write_text(beside)
    replant(folder, honest)
    verify(folder)
    return held


def made(out: Path, **choices: Any) -> Path:
    extractor = {"name": "identity", "version": 1, "options": {}}
    write_release(out, make_plan(records=200, **choices), make_records(200), extractor=extractor)
    return out


# One of each sort of certificate; the others differ in what is a design's own.
DAILY = {"poisson", "moments", "three-stage", "merf-24"}
OWN = {"plan", "event", "noise_std", "statements", "warnings"}


@pytest.mark.parametrize(
    "choices",
    [
        pytest.param(one, id=design_name(one), marks=[] if design_name(one) in DAILY else [pytest.mark.thorough])
        for one in EVERY_DESIGN
    ],
)
def test_nothing_can_be_planted_in_the_certificate_of_a_release(choices: dict[str, Any], tmp_path: Path) -> None:
    plants = list(PLANTS) if choices == {"design": "three-stage"} else ["numbers"]
    within = None if design_name(choices) in DAILY else OWN
    assert planted(made(tmp_path / "REL", **choices), verify_release, plants, within=within) == []


@pytest.mark.parametrize("name", ["linear", "views"])
def test_nothing_can_be_planted_in_the_certificate_of_a_model(name: str, tmp_path: Path) -> None:
    config, given = config_of(), {}
    if name == "views":
        config = config_of("wrn-10-1", epochs=0.1, views=ViewConfig.dp_mix_self(2, 1), scenario="warm", batch_size=10)
        given = {"public": public()}
    job_of(config, **given).run(private(), streams=SecretStreams.from_seed(0)).write(tmp_path)
    plants = list(PLANTS) if name == "linear" else ["numbers"]
    assert planted(tmp_path, verify_trained, plants, also="model.json") == []


# What follows from other numbers. The others bear noise: what exceeds that is taken for data, and can't be refused.
WITHOUT_NOISE = {"directions", "means", "class_directions", "class_means", "models", "frequencies", "chosen_pairs"}
FOLLOWING = {"two-stage", "three-stage", "corrected-moments", "merf", "hermite"}
STAGED = [choices for choices in EVERY_DESIGN if choices["design"] in FOLLOWING]


@pytest.mark.parametrize("choices", STAGED, ids=design_name)
def test_no_array_without_noise_holds_records(choices: dict[str, Any], tmp_path: Path) -> None:
    folder = made(tmp_path / "REL", **choices)
    certificate = json.loads((folder / "certificate.json").read_text())
    (path,) = [one for one in folder.glob("*.safetensors") if one.name != "centre.safetensors"]
    arrays, before = load_file(path), path.read_bytes()
    assert WITHOUT_NOISE & set(arrays)
    for name in WITHOUT_NOISE & set(arrays):
        records = RNG.random(arrays[name].shape).astype(np.float32)
        path.write_bytes(arrays_bytes({**arrays, name: records}))
        replant(folder, copy.deepcopy(certificate), rehashed=True)
        with pytest.raises(PrivmixError):
            verify_release(folder)
    path.write_bytes(before)
    replant(folder, certificate)
    verify_release(folder)


def test_a_release_with_features_of_earlier_versions_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = made(tmp_path / "REL")
    certificate = json.loads((folder / "certificate.json").read_text())
    certificate["extractor"] = {"name": "whitened", "version": 1, "options": {}, "arrays": {"step": [7]}}
    replant(folder, certificate)
    for read in (verify_release, pm.load):
        with pytest.raises(PrivmixError, match="no longer reads these features"):
            read(folder)


@pytest.mark.parametrize("size", [LONGEST_NAME, LONGEST_NAME + 1])
def test_names_of_classes_are_as_long_as_verification_says(size: int, tmp_path: Path) -> None:
    """All that a certificate of a release without a model, a table or a planner lets anybody write."""
    folder = made(tmp_path / "REL")
    certificate = json.loads((folder / "certificate.json").read_text())
    certificate["plan"]["classes"][1] = "x" * size
    replant(folder, certificate)
    if size > LONGEST_NAME:
        with refuses("plan classes"):
            verify_release(folder)
    else:
        assert any(f"{LONGEST_NAME} characters" in text for text in verify_release(folder).unchecked)
