"""Models on disk: a folder with ``model.json`` and ``weights.safetensors``, which is data: loading it runs no code."""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as dump_tensors

from privmix.errors import InvalidInput, StorageError, check_integer, check_number
from privmix.folders import FolderKind
from privmix.learning.base import LEARNERS, ReleaseFacts, ReleaseLearner, check_arrays
from privmix.learning.class_statistics import SOURCE
from privmix.publication.dataset import RecordTransform
from privmix.untrusted import array_shapes, check_texts, open_plain, read_json

FORMAT: Final = "privmix-model"
SCHEMA_VERSION: Final = 1
_JSON, _WEIGHTS = "model.json", "weights.safetensors"
# Pictures of its evaluation may lie in a model's folder.
MODEL_FOLDER: Final = FolderKind("model folder", "a model", frozenset({_JSON, _WEIGHTS}))
# A centre is as long as a record: it is stored with the weights, under a name no layer has.
_CENTRE: Final = "transform.centre"


def save_model(model: ReleaseLearner, folder: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a fitted model to a new folder, whole or not at all; return its path.

    ``overwrite`` replaces ``folder``, and all in it, if it holds a model; any other folder is never replaced.
    """
    target = Path(folder)
    if type(model) not in LEARNERS.all() or not hasattr(model, "facts_"):
        raise InvalidInput("model", type(model).__name__, "a fitted learner: " + ", ".join(LEARNERS))
    if not model.private_:
        raise InvalidInput(
            "model", "one fitted to records themselves", "a model fitted to a release: this one is not private"
        )
    MODEL_FOLDER.check_target(target, overwrite=overwrite)
    arrays = {name: np.ascontiguousarray(array) for name, array in model._arrays().items()}
    centre = model.facts_.transform.centre
    if centre is not None:
        arrays[_CENTRE] = np.ascontiguousarray(centre, dtype=np.float32)
    content = json.dumps(describe_model(model), indent=2, allow_nan=False)
    with MODEL_FOLDER.new(target, overwrite=overwrite) as draft:
        draft.write(_WEIGHTS, dump_tensors(arrays), shared=True)
        draft.write(_JSON, (content + "\n").encode(), shared=True)
    return target


def load_model(folder: str | os.PathLike[str]) -> ReleaseLearner:
    """Read a model that :func:`save_model` wrote; it predicts exactly as the saved one did.

    Formal guarantees:
        * The folder is data: nothing of it is run, no path or address that it names is opened, and no link followed.
        * Memory: arrays are compared with the content of ``model.json`` before anything is made for them.

    Raises:
        StorageError: the folder or a file in it is missing, unreadable or not in the model format.
        InvalidInput: a file is damaged or no plain file, the files do not fit together, or come from another version.
    """
    path = Path(folder)
    found = read_json(path / _JSON, _JSON)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise StorageError(f"{path / _JSON}: not a privmix model")
    check_texts(found, _JSON)
    if found.get("schema_version") != SCHEMA_VERSION:
        raise InvalidInput("schema_version", found.get("schema_version"), f"{SCHEMA_VERSION}, which this version reads")
    # The header first: arrays then fill the file exactly, and take no more than it holds.
    array_shapes(path / _WEIGHTS, _WEIGHTS)
    with open_plain(path / _WEIGHTS, _WEIGHTS) as stream:
        content = stream.read()
    try:
        arrays: dict[str, NDArray[Any]] = load_tensors(content)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        # KeyError and TypeError: a safetensors number type that NumPy lacks.
        raise StorageError(f"{path / _WEIGHTS}: not a valid safetensors file") from error
    learner = LEARNERS[found.get("learner")]
    # Parameters that a model lacks are younger than it is, and their defaults are what was before.
    params = _field(found, "params", dict, lambda value: set(value) <= set(learner().get_params()))
    model = learner(**params)
    model._check_params()
    facts = _facts(found, arrays.pop(_CENTRE, None))
    model._restore(arrays, facts)
    model._set_facts(facts)
    model.temperature_ = check_number("temperature", found.get("temperature", 1.0), low=0, low_open=True)
    if "class_texts" in found:
        kinds = {**SOURCE, "weight": float}
        are_told = lambda told: all(isinstance(value, kinds.get(name, ())) for name, value in told.items())  # noqa: E731
        model.told_ = _field(found, "class_texts", dict, are_told)
    return model


def is_fitted_model(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder has a model of this format, and no certificate."""
    path = Path(folder) / _JSON
    try:
        found = read_json(path, path.name)
    except (StorageError, InvalidInput):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def describe_model(model: ReleaseLearner) -> dict[str, Any]:
    """Content of ``model.json`` on a fitted model: learner, parameters, classes, features, release; JSON values."""
    facts = model.facts_
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "learner": model.name,
        # Numbers of NumPy are none of JSON.
        "params": {k: v.item() if isinstance(v, np.generic) else v for k, v in model.get_params().items()},
        "classes": list(facts.classes),
        "dim": facts.dim,
        "extractor": dict(facts.extractor),
        "input_shape": list(facts.input_shape),
        "transform": {
            "clip_norm": facts.transform.clip_norm,
            "norm": facts.transform.norm,
            "centred": facts.transform.centre is not None,
            "residual_clip_norm": facts.transform.residual_clip_norm,
        },
        "release_id": facts.release_id,
        "temperature": model.temperature_,
        # Only if there are class texts: models without are unchanged.
        **({} if model.told_ is None else {"class_texts": dict(model.told_)}),
    }


def _facts(found: Mapping[str, Any], centre: NDArray[Any] | None) -> ReleaseFacts:
    dim = check_integer("dim", found.get("dim"), low=1)
    classes = _field(found, "classes", list, lambda names: names and all(isinstance(name, str) for name in names))
    transform = _field(found, "transform", dict, lambda value: isinstance(value.get("centred"), bool))
    shape = _field(found, "input_shape", list, lambda sizes: all(type(size) is int and size >= 1 for size in sizes))
    if transform["centred"] != (centre is not None):
        raise InvalidInput("transform.centred", transform["centred"], f"true exactly when weights hold {_CENTRE}")
    if centre is not None:
        check_arrays({_CENTRE: centre}, {_CENTRE: (dim,)})
    extractor = _field(found, "extractor", dict, lambda value: True)
    if "arrays" in extractor:
        allowed = "a model fitted again: this version no longer reads features whitened by public data"
        raise InvalidInput("extractor", extractor.get("name"), allowed)
    return ReleaseFacts(
        classes=tuple(classes),
        transform=RecordTransform(
            clip_norm=transform.get("clip_norm", math.nan),
            norm=transform.get("norm", ""),
            centre=centre,
            residual_clip_norm=transform.get("residual_clip_norm"),
        ),
        extractor=extractor,
        input_shape=tuple(shape),
        release_id=_field(found, "release_id", str, lambda value: True),
        dim=dim,
    )


def _field(found: Mapping[str, Any], name: str, kind: type, fits: Callable[[Any], Any]) -> Any:
    value = found.get(name)
    if not isinstance(value, kind) or not fits(value):
        raise InvalidInput(name, value, f"a JSON {_JSON_KINDS[kind]}, as save_model writes it")
    return value


_JSON_KINDS: Final[dict[type, str]] = {dict: "object", list: "array", str: "string"}
