"""Check a trained model without trusting its maker: its price, its texts, and every byte of its files."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from privmix.certificate.certificate import CERTIFICATE_FILE, MOST_BYTES, check_counted, check_guarantee, check_said
from privmix.certificate.guarantee import Guarantee
from privmix.certificate.signing import ATTESTATION_FILE
from privmix.certificate.verification import COUNT_UNCHECKED, Verification
from privmix.errors import InvalidInput, check_choice
from privmix.features.spec import check_shape, check_spec
from privmix.training.certificate import CARD_FILE, WEIGHTS_FILE, model_card, public_text
from privmix.training.config import OF_THE_JOB, TrainingConfig
from privmix.training.mechanisms.base import mechanism_of, plan_from_dict
from privmix.training.models.own import OwnNetwork
from privmix.training.plan import TrainingPlan
from privmix.training.public.config import WARM_SCENARIOS
from privmix.training.trained import FORMAT, MODEL_FILE, TrainedModel, load_trained
from privmix.training.trained import SCHEMA_VERSION as MODEL_VERSION
from privmix.untrusted import all_finite, array_shapes, check_listing, open_plain, parse_json, read_plain

# All that a trained model's folder may hold; the second ones may be missing. Any other file makes it no model.
FILES: Final = (MODEL_FILE, WEIGHTS_FILE, CERTIFICATE_FILE)
OPTIONAL_FILES: Final = (ATTESTATION_FILE, CARD_FILE)

_EARLIER: Final = "network.json"

UNCHECKED: Final = (
    "that the weights came from running this plan: one set of weights shows nothing of the noise in it",
    "that insecure_seed is honest, and that the key was kept secret and destroyed",
    COUNT_UNCHECKED,
    "that a ledger was charged, other uses of the same records, and that what it calls public data is public",
    "who made the model, unless privmix verify --key finds it signed: hashes show edits and are no signature",
)
"""Limits of verification, in words."""
NO_MODULE: Final = (
    "that the weights are those of a network that treats each record alone: its code is not in the folder; the module "
    "that was trained (`module`) shows whether they fit it"
)

# Fields of model.json in addition to its format, and the settings that must be equal to them.
_EXTRACTOR: Final = {"name", "version", "options", "decoder", "weights_sha256", "files_sha256"}
# Kinds of devices that training runs on, and bytes of a network's description: that of a pretrained one is the longest.
_DEVICES: Final = ("cpu", "cuda", "mps", "xpu")
_MOST_OF_NETWORK: Final = 2**14
_OF_THE_MODEL: Final = ("network", "classes", "dim", "extractor", "input_shape")
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


def verify_trained(folder: str | Path, module: Any = None) -> Verification:
    """Recompute the claims of a trained model's certificate.

    Formal guarantees:
        * Whole: the folder holds exactly the model's files, plain ones. Every byte of them follows from the certificate
          or has the hash that it states, and those of the certificate follow from its content.
        * Nothing else: the weights are the network's, of its types and shapes, finite, and fill their file.
        * One plan: the event is the one that follows from the plan, and the settings state the same as the plan.
        * Price: epsilon of the event at the plan's delta, recomputed here, is at most the stated one.
        * Nothing for nothing: epsilon is 0 only where the plan has no steps and public data are named.
        * Words: statements and warnings are those that follow from the plan.

    The hash shows edits and is no signature: a writer of the folder may write another certificate, but none that
    promises more than its own plan keeps. :data:`UNCHECKED` lists the unverifiable claims, :data:`NO_MODULE` those of a
    user's own network without its ``module``, of which nothing is computed.
    """
    root = Path(folder)
    present = [name for name in OPTIONAL_FILES if os.path.lexists(root / name)]
    if os.path.lexists(root / _EARLIER):
        # Raises with advice for a model of an earlier version.
        load_trained(root)
    check_listing(root, "files", [*FILES, *present])
    model = load_trained(root, module)
    certificate = model.certificate
    plan = plan_of(certificate)
    for name, planned in plan.to_dict().items():
        if name in _PLANNED and certificate["settings"].get(name) != planned:
            found = certificate["settings"].get(name)
            raise InvalidInput(f"certificate settings {name}", found, f"{planned!r}, as in the plan")
    warmed_up = certificate["settings"].get("scenario") in WARM_SCENARIOS and certificate["public_data"]
    # A plan without steps has epsilon 0, which is true only for a model of public data.
    if plan.steps == 0 and not warmed_up:
        raise InvalidInput("certificate plan steps", 0, "more than 0 for a model that public data did not make")
    cost = check_guarantee(certificate, plan)
    check_counted(certificate, plan)
    facts = certificate["public_data"], certificate.insecure_seed, certificate.in_ledger
    said = {"extractor": certificate["settings"].get("extractor")}
    older = [public_text(plan, *facts, **said, before=before) for before in (False, True)]
    right = Guarantee.of_plan(plan).stated_right(certificate)
    check_said(certificate, public_text(plan, *facts, **said, right=right), *older)
    _check_settings(certificate["settings"], plan)
    _check_files(root, model)
    own = isinstance(model.network, OwnNetwork) and not model.network.computes
    check_shape(model.facts_.extractor, model.facts_.input_shape, model.facts_.dim)
    # Models of earlier builds have no card.
    card = model_card(certificate).encode()
    if CARD_FILE in present and read_plain(root / CARD_FILE, CARD_FILE, len(card)) != card:
        raise InvalidInput(CARD_FILE, "other content", "the model card that follows from the certificate")
    unchecked = (NO_MODULE, *UNCHECKED) if own else UNCHECKED
    return Verification.of(certificate, cost, extractor=model.facts_.extractor, unchecked=unchecked)


def plan_of(certificate: Mapping[str, Any]) -> TrainingPlan:
    plan = plan_from_dict(certificate["plan"])
    if plan.epsilon is None:
        raise InvalidInput("certificate plan epsilon", None, "the epsilon that was asked for")
    return plan


def _check_settings(settings: Mapping[str, Any], plan: TrainingPlan) -> None:
    if missing := sorted(OF_THE_JOB - set(settings)):
        raise InvalidInput("certificate settings", missing, "the settings of a training job and no others")
    if not isinstance(settings["extractor"], Mapping) or not set(settings["extractor"]) <= _EXTRACTOR:
        raise InvalidInput("certificate extractor", "other fields", "the fields of an extractor and no others")
    check_spec(settings["extractor"])
    config, mechanism = TrainingConfig.from_settings(settings), mechanism_of(plan)
    planned = {"mechanism": mechanism.name, "mechanism_options": mechanism.options_of(plan)}
    for name, value in planned.items():
        if getattr(config, name) != value:
            raise InvalidInput(f"certificate settings {name}", getattr(config, name), f"{value!r}, as in the plan")
    check_choice("certificate device", settings["device"], _DEVICES)
    if len(json.dumps(settings["network"])) > _MOST_OF_NETWORK:
        raise InvalidInput("certificate network", "a longer one", f"a description of {_MOST_OF_NETWORK} bytes at most")


def _check_files(root: Path, model: TrainedModel) -> None:
    """Raise unless the files hold what was loaded, as privmix writes it, and nothing else."""
    certificate, settings = model.certificate, model.certificate["settings"]
    if read_plain(root / CERTIFICATE_FILE, CERTIFICATE_FILE, MOST_BYTES) != certificate.to_bytes():
        raise InvalidInput(CERTIFICATE_FILE, "another layout", "the layout in which privmix writes it")
    content = read_plain(root / MODEL_FILE, MODEL_FILE, MOST_BYTES)
    found = parse_json(content, MODEL_FILE)
    wanted = {"format": FORMAT, "schema_version": MODEL_VERSION, **{name: settings[name] for name in _OF_THE_MODEL}}
    # Exact bytes are compared, because blanks between entries could carry data past every check.
    if found != wanted or content != (json.dumps(found, indent=2) + "\n").encode():
        odd = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        raise InvalidInput(
            MODEL_FILE, odd or "another layout", "exactly the entries that follow from the certificate's settings"
        )
    _check_weights(root / WEIGHTS_FILE, model)


def _check_weights(path: Path, model: TrainedModel) -> None:
    """Raise unless the weights' file holds the network's weights alone, with no free space in its header."""
    state = model.network.state_dict()
    shapes = {name: tuple(shape) for name, (_, shape) in array_shapes(path, WEIGHTS_FILE).items()}
    if shapes != {name: tuple(tensor.shape) for name, tensor in state.items()}:
        raise InvalidInput(WEIGHTS_FILE, "arrays of other shapes", "the weights of the network")
    all_finite({name: tensor.numpy(force=True) for name, tensor in state.items()}, WEIGHTS_FILE)
    with open_plain(path, WEIGHTS_FILE) as stream:
        content = stream.read()
    head = content[8 : 8 + int.from_bytes(content[:8], "little")]
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    # Bytes that no tensor uses could carry data past every check.
    if len(content) != 8 + len(head) + size:
        raise InvalidInput(WEIGHTS_FILE, "values of another type", "the weights of the network")
    compact = json.dumps(parse_json(head, WEIGHTS_FILE), separators=(",", ":"), ensure_ascii=False).encode()
    if head != compact + b" " * (-len(compact) % 8):
        raise InvalidInput(WEIGHTS_FILE, "another layout of its header", "the layout in which privmix writes it")
    if hashlib.sha256(content).hexdigest() != model.certificate["files"][0]["sha256"]:
        raise InvalidInput(WEIGHTS_FILE, "other bytes", "the weights that the certificate is about")
