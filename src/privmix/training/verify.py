"""Check a trained model without trusting whoever made it: its price, its texts, and every byte of its files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from privmix.accounting import event_from_dict
from privmix.certificate.assessment import as_rows
from privmix.certificate.signing import ATTESTATION_FILE
from privmix.errors import InvalidInput, check_number
from privmix.rounding import rounded_up
from privmix.training.certificate import PACKAGES, SCHEMA_VERSION, certificate_bytes, stated_content
from privmix.training.config import OF_THE_JOB, WHERE_USED, TrainingConfig
from privmix.training.plan import TrainingPlan
from privmix.training.trained import (
    CERTIFICATE_FILE,
    FORMAT,
    MODEL_FILE,
    WEIGHTS_FILE,
    TrainedModel,
    load_trained,
)
from privmix.training.trained import SCHEMA_VERSION as MODEL_VERSION
from privmix.untrusted import MEBIBYTE, all_finite, array_shapes, check_listing, open_plain, parse_json, read_plain

# All that a trained model's folder may hold; the second ones may be missing. Whatever else is there makes it no model.
FILES: Final = (MODEL_FILE, WEIGHTS_FILE, CERTIFICATE_FILE)
OPTIONAL_FILES: Final = (ATTESTATION_FILE,)

UNCHECKED: Final = (
    "that the weights came from running this plan: one set of weights shows nothing of the noise in it",
    "that insecure_seed is honest, and that the key was kept secret and destroyed",
    "that the record count is what it says, and that each person has one record",
    "that a ledger was charged, other uses of the same records, and that what it calls public data is public",
    "who made the model, unless privmix verify --key finds it signed: hashes show edits and are no signature",
)
"""What verification can't see, in words."""

_MOST_BYTES: Final = 16 * MEBIBYTE
_FIELDS: Final[dict[str, type]] = {
    "model_id": str,
    "guarantee": dict,
    "plan": dict,
    "event": dict,
    "settings": dict,
    "public_data": dict,
    "insecure_seed": bool,
    "in_ledger": str,
    "warnings": list,
    "statements": list,
    "assessment": list,
    "weights_sha256": str,
    "versions": dict,
    "content_sha256": str,
    "schema_version": int,
}
# What model.json says beside its format, and the settings that must say the same.
_EXTRACTOR: Final = {"name", "version", "options", "weights_sha256", "files_sha256"}
_OF_THE_MODEL: Final = ("network", "classes", "dim", "extractor", "input_shape")
_ID: Final = re.compile(r"[0-9a-f]{32}\Z")
_HASH: Final = re.compile(r"[0-9a-f]{64}\Z")
_VERSION: Final = re.compile(r"[\w.+-]{1,40}\Z")
_GUARANTEE: Final = frozenset(("epsilon", "delta", "adjacency", "accountant", "is_upper_bound", "epsilon_asked"))
# Settings that the plan holds too: model cards are made from either.
_PLANNED: Final = (
    "epsilon",
    "records",
    "records_declared",
    "batch_size",
    "clip_norm",
    "delta",
    "adjacency",
    "microbatch_size",
)


@dataclass(frozen=True)
class TrainedVerification:
    """What held. Every check that fails raises instead.

    Attributes:
        model_id: names the model.
        epsilon: stated.
        delta: stated.
        adjacency: stated.
        recomputed_epsilon: of the event, computed here.
        warnings: the certificate's.
        extractor: description of the feature extractor.
        unchecked: what was not and can't be checked, in words.
    """

    model_id: str
    epsilon: float
    delta: float
    adjacency: str
    recomputed_epsilon: float
    warnings: tuple[str, ...]
    extractor: Mapping[str, Any] = field(default_factory=dict, repr=False)
    unchecked: tuple[str, ...] = UNCHECKED

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        own = {name: value for name, value in vars(self).items() if not isinstance(value, tuple | Mapping)}
        return {**own, "warnings": list(self.warnings), "unchecked": list(self.unchecked)}


def verify_trained(folder: str | Path) -> TrainedVerification:
    """Recompute what a trained model's certificate claims.

    Formal guarantees:
        * Whole: the folder holds exactly the model's files, plain ones; every byte of them follows from the
          certificate or has the hash that it states, and those of the certificate follow from its content.
        * Nothing else: the weights are the network's, of its types and shapes, finite, and fill their file.
        * One plan: the event is the one that follows from the plan, and the settings say what the plan says.
        * Price: epsilon of the event at the plan's delta, recomputed here, is at most the stated one.
        * Words: statements and warnings are those that follow from the plan.

    The hash shows edits and is no signature: who may write the folder may write another certificate, but none that
    promises more than its own plan keeps. What can't be seen is in :data:`UNCHECKED`.

    Raises:
        InvalidInput: a check failed; the message names it.
        StorageError: a file is missing or unreadable.

    Example:
        >>> import tempfile
        >>> from privmix.training import ModelFacts, TrainingConfig, TrainingJob, TrainingRecords
        >>> config = TrainingConfig.for_model("linear", records=300, epsilon=4.0, delta=1e-4, epochs=1)
        >>> job = TrainingJob(config, ModelFacts(("no", "yes"), {"name": "identity"}, (2,), dim=2), records=300)
        >>> folder = Path(tempfile.mkdtemp())
        >>> job.run(TrainingRecords.of([[0.0, 1.0], [1.0, 0.0]] * 150, [0, 1] * 150, classes=2)).write(folder)
        >>> verify_trained(folder).recomputed_epsilon <= 4.0
        True
    """
    root = Path(folder)
    present = [name for name in OPTIONAL_FILES if os.path.lexists(root / name)]
    check_listing(root, "files", [*FILES, *present])
    model = load_trained(root)
    certificate = model.certificate
    plan = plan_of(certificate)
    if event_from_dict(certificate["event"]) != plan.event:
        raise InvalidInput("certificate event", certificate["event"], "the event that follows from its plan")
    for name, planned in plan.to_dict().items():
        if name in _PLANNED and certificate["settings"].get(name) != planned:
            found = certificate["settings"].get(name)
            raise InvalidInput(f"certificate settings {name}", found, f"{planned!r}, as in the plan")
    expected = _expected(certificate, plan)
    recomputed = _check_guarantee(certificate["guarantee"], expected["guarantee"])
    for name in ("warnings", "statements", "assessment"):
        if certificate[name] != expected[name]:
            raise InvalidInput(f"certificate {name}", "other text", "the text that follows from the plan")
    _check_fields(certificate)
    _check_files(root, model)
    stated = certificate["guarantee"]
    return TrainedVerification(
        certificate["model_id"],
        stated["epsilon"],
        stated["delta"],
        stated["adjacency"],
        recomputed,
        tuple(certificate["warnings"]),
        model.facts_.extractor,
    )


def plan_of(certificate: Mapping[str, Any]) -> TrainingPlan:
    """The plan in a certificate whose fields are all there, so that it can be shown; nothing is recomputed.

    Raises:
        InvalidInput: a field is missing or of another kind, or this is another version.
    """
    if certificate.get("schema_version") != SCHEMA_VERSION:
        allowed = f"{SCHEMA_VERSION}; certificates of another are read by the privmix that their versions name"
        raise InvalidInput("certificate schema_version", certificate.get("schema_version"), allowed)
    for name, kind in _FIELDS.items():
        if not isinstance(certificate.get(name), kind):
            raise InvalidInput(f"certificate {name}", certificate.get(name), f"a JSON {kind.__name__}")
    as_rows(certificate["assessment"])
    stated = certificate["guarantee"]
    if set(stated) != _GUARANTEE:
        raise InvalidInput("certificate guarantee", sorted(stated), f"{sorted(_GUARANTEE)}")
    for name in ("epsilon", "delta", "epsilon_asked"):
        check_number(f"certificate {name}", stated[name], low=0)
    plan = TrainingPlan.from_dict(certificate["plan"])
    if plan.epsilon is None:
        raise InvalidInput("certificate plan epsilon", None, "the epsilon that was asked for")
    return plan


def _expected(certificate: Mapping[str, Any], plan: TrainingPlan) -> dict[str, Any]:
    """The certificate that training would write for this plan, priced anew."""
    try:
        return stated_content(
            plan,
            model_id=certificate["model_id"],
            settings=certificate["settings"],
            weights_sha256=certificate["weights_sha256"],
            insecure_seed=certificate["insecure_seed"],
            in_ledger=certificate["in_ledger"],
            public_data=certificate["public_data"],
        )
    except ArithmeticError:
        raise InvalidInput("certificate event", certificate["event"], "an event that can be priced") from None


def _check_guarantee(stated: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """Compare all figures of the guarantee; returns the recomputed epsilon."""
    recomputed, claimed = float(expected["epsilon"]), float(stated["epsilon"])
    # The same figures may differ in the last digits between versions of the numerical libraries.
    if not recomputed <= claimed * (1 + 1e-6):
        raise InvalidInput("certificate epsilon", claimed, f"at least {recomputed:.6g}, the recomputed epsilon")
    for name in sorted(set(expected) - {"epsilon"}):
        if stated[name] != expected[name] or type(stated[name]) is not type(expected[name]):
            raise InvalidInput(f"certificate {name}", stated[name], f"{expected[name]!r}, as follows from the plan")
    if not claimed * (1 - 1e-6) <= stated["epsilon_asked"]:
        raise InvalidInput("certificate epsilon_asked", stated["epsilon_asked"], f"at least {rounded_up(claimed, 6)}")
    return recomputed


def _check_fields(certificate: Mapping[str, Any]) -> None:
    """Nothing but what training writes is in the certificate."""
    if odd := sorted(set(certificate) ^ set(_FIELDS)):
        raise InvalidInput("certificate", odd, "its fields and no others")
    own = {field.name for field in fields(TrainingConfig)} | OF_THE_JOB
    # What is stated only where it is used is not stated where it is not.
    unused = {name for name in WHERE_USED if certificate["settings"].get(name) is not False}
    if odd := sorted(set(certificate["settings"]) ^ (own - unused)):
        raise InvalidInput("certificate settings", odd, "the settings of a training job and no others")
    if odd := sorted(set(certificate["settings"]["extractor"]) - _EXTRACTOR):
        raise InvalidInput("certificate extractor", odd, "the fields of an extractor and no others")
    for name, form in (("model_id", _ID), ("weights_sha256", _HASH)):
        if not form.match(certificate[name]):
            raise InvalidInput(f"certificate {name}", certificate[name], "hexadecimal digits as privmix writes them")
    versions = certificate["versions"]
    if set(versions) != set(PACKAGES):
        raise InvalidInput("certificate versions", sorted(versions), f"those of {', '.join(PACKAGES)}")
    for name, version in versions.items():
        if version is not None and not (isinstance(version, str) and _VERSION.match(version)):
            raise InvalidInput(f"certificate versions {name}", version, "a version")
    for name, digest in certificate["public_data"].items():
        if not isinstance(digest, str) or len(name) > 40 or len(digest) > 128:
            raise InvalidInput("certificate public_data", name, "names and digests")


def _check_files(root: Path, model: TrainedModel) -> None:
    """The files hold what was loaded, as privmix writes it, and nothing else."""
    certificate, settings = model.certificate, model.certificate["settings"]
    if read_plain(root / CERTIFICATE_FILE, CERTIFICATE_FILE, _MOST_BYTES) != certificate_bytes(certificate):
        raise InvalidInput(CERTIFICATE_FILE, "another layout", "the layout in which privmix writes it")
    content = read_plain(root / MODEL_FILE, MODEL_FILE, _MOST_BYTES)
    found = parse_json(content, MODEL_FILE)
    wanted = {"format": FORMAT, "schema_version": MODEL_VERSION, **{name: settings[name] for name in _OF_THE_MODEL}}
    if found != wanted or content != (json.dumps(found, indent=2) + "\n").encode():
        odd = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        raise InvalidInput(MODEL_FILE, odd or "another layout", "what the certificate's settings say, and nothing else")
    _check_weights(root / WEIGHTS_FILE, model)


def _check_weights(path: Path, model: TrainedModel) -> None:
    """The weights' file has room for the network's weights alone, and a header without free space."""
    state = model.network.state_dict()
    shapes = {name: tuple(shape) for name, (_, shape) in array_shapes(path, WEIGHTS_FILE).items()}
    if shapes != {name: tuple(tensor.shape) for name, tensor in state.items()}:
        raise InvalidInput(WEIGHTS_FILE, "arrays of other shapes", "the weights of the network")
    all_finite({name: tensor.numpy(force=True) for name, tensor in state.items()}, WEIGHTS_FILE)
    with open_plain(path, WEIGHTS_FILE) as stream:
        content = stream.read()
    head = content[8 : 8 + int.from_bytes(content[:8], "little")]
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    if len(content) != 8 + len(head) + size:
        raise InvalidInput(WEIGHTS_FILE, "values of another type", "the weights of the network")
    compact = json.dumps(parse_json(head, WEIGHTS_FILE), separators=(",", ":"), ensure_ascii=False).encode()
    if head != compact + b" " * (-len(compact) % 8):
        raise InvalidInput(WEIGHTS_FILE, "another layout of its header", "the layout in which privmix writes it")
    if hashlib.sha256(content).hexdigest() != model.certificate["weights_sha256"]:
        raise InvalidInput(WEIGHTS_FILE, "other bytes", "the weights that the certificate is about")
