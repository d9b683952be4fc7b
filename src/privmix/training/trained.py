"""A trained model: predictions from features, and its folder. No pickle, so loading runs no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors

from privmix.errors import InvalidInput, StorageError, check_integer
from privmix.folders import write_durably
from privmix.training.certificate import content_hash
from privmix.training.layout import ImageLayout
from privmix.training.models import Classifier, model_from_spec

FORMAT: Final = "privmix-trained-model"
SCHEMA_VERSION: Final = 1
MODEL_FILE, WEIGHTS_FILE, CERTIFICATE_FILE = "model.json", "weights.safetensors", "certificate.json"
_BATCH: Final = 512


@dataclass(frozen=True)
class ModelFacts:
    """The public facts with which a model classifies raw inputs on its own.

    Attributes:
        classes: class names; a prediction k means ``classes[k]``.
        extractor: description of the feature extractor, enough to rebuild it.
        input_shape: shape of one raw input of that extractor.
        dim: d, the number of features.
    """

    classes: tuple[str, ...]
    extractor: Mapping[str, Any] = field(repr=False)
    input_shape: tuple[int, ...]
    dim: int

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or not all(isinstance(name, str) for name in self.classes):
            raise InvalidInput("classes", self.classes, "at least two names")
        check_integer("dim", self.dim, low=1)

    @property
    def layout(self) -> ImageLayout | None:
        """How the features are images, or None where they are not pixels in the input's own order."""
        if self.extractor.get("name") != "pixels" or len(self.input_shape) not in (2, 3):
            return None
        return ImageLayout.of_input(self.input_shape)


@dataclass(eq=False)
class TrainedModel:
    """A network with its facts and its certificate.

    Attributes:
        network: takes images or vectors, as its ``takes_images`` says.
        facts_: public facts.
        certificate: what was guaranteed, see :func:`privmix.training.certificate.training_certificate`.
    """

    network: Classifier
    facts_: ModelFacts
    certificate: Mapping[str, Any] = field(repr=False)

    def predict_proba(self, features: Any) -> NDArray[np.float32]:
        """(n, d) extractor output -> (n, classes) probabilities.

        Raises:
            InvalidInput: the features have another width, or are no finite numbers.
        """
        x = np.asarray(features)
        if x.ndim != 2 or x.shape[1] != self.facts_.dim or x.dtype.kind not in "biuf":
            raise InvalidInput("features", x.shape, f"numbers of shape (n, {self.facts_.dim})")
        if not np.isfinite(x).all():
            raise InvalidInput("features", "values that are no finite numbers", "finite numbers")
        device = next(self.network.parameters()).device
        found = np.empty((len(x), len(self.facts_.classes)), np.float32)
        self.network.eval()
        with torch.no_grad():
            for start in range(0, len(x), _BATCH):
                part = torch.from_numpy(np.array(x[start : start + _BATCH], dtype=np.float32)).to(device)
                logits = self.network(shaped(part, self.network, self.facts_))
                found[start : start + _BATCH] = logits.float().softmax(dim=1).cpu().numpy()
        return found

    def predict(self, features: Any) -> NDArray[np.int64]:
        """(n, d) extractor output -> (n,) class indices."""
        return np.asarray(self.predict_proba(features).argmax(axis=1), dtype=np.int64)

    def write(self, folder: Path) -> None:
        """Write the model's files into an existing folder."""
        facts = self.facts_
        content = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "network": self.network.spec(),
            "classes": list(facts.classes),
            "dim": facts.dim,
            "extractor": dict(facts.extractor),
            "input_shape": list(facts.input_shape),
        }
        # On disk before anyone ends the key of the run that made them.
        write_durably(folder / WEIGHTS_FILE, weights_bytes(self.network))
        write_durably(folder / MODEL_FILE, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())
        write_durably(folder / CERTIFICATE_FILE, (json.dumps(dict(self.certificate), indent=2) + "\n").encode())


def shaped(x: torch.Tensor, network: Classifier, facts: ModelFacts) -> torch.Tensor:
    """Vectors (..., d) as the network takes them.

    Raises:
        InvalidInput: the network takes images and the features are none.
    """
    if not network.takes_images:
        return x
    layout = facts.layout
    if layout is None:
        raise InvalidInput("model", network.architecture, "linear, for features that are no pixels of images")
    return layout.to_images(x)


def weights_bytes(network: Classifier) -> bytes:
    """All weights as a safetensors file."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    return bytes(dump_tensors(tensors))


def weights_digest(network: Classifier) -> str:
    """SHA-256 of :func:`weights_bytes`."""
    return hashlib.sha256(weights_bytes(network)).hexdigest()


def is_trained_model(folder: str | Path) -> bool:
    """Whether ``folder`` holds a model that was trained with DP-SGD (and not one fitted on a release)."""
    try:
        return bool(json.loads((Path(folder) / MODEL_FILE).read_text(encoding="utf-8")).get("format") == FORMAT)
    except (OSError, ValueError, AttributeError):
        return False


def load_trained(folder: str | Path) -> TrainedModel:
    """Read a model's folder; it predicts exactly what the trained one did.

    Raises:
        StorageError: the folder or a file in it is missing or can't be read.
        InvalidInput: the files are not a trained model, were edited, or don't fit together.
    """
    path = Path(folder)
    found, certificate = _read_json(path / MODEL_FILE), _read_json(path / CERTIFICATE_FILE)
    if found.get("format") != FORMAT or found.get("schema_version") != SCHEMA_VERSION:
        raise InvalidInput(str(path / MODEL_FILE), found.get("format"), f"{FORMAT}, version {SCHEMA_VERSION}")
    if certificate.get("content_sha256") != content_hash(certificate):
        raise InvalidInput("certificate content_sha256", certificate.get("content_sha256"), "the hash of its content")
    try:
        content = (path / WEIGHTS_FILE).read_bytes()
        weights = load_tensors(content)
    except OSError as error:
        raise StorageError(f"{path / WEIGHTS_FILE}: {error.strerror}") from None
    except (SafetensorError, ValueError, KeyError):
        raise StorageError(f"{path / WEIGHTS_FILE}: not a safetensors file") from None
    if hashlib.sha256(content).hexdigest() != certificate.get("weights_sha256"):
        raise InvalidInput(WEIGHTS_FILE, "other bytes", "the weights that the certificate is about")
    spec = _field(found, "network", dict)
    network = model_from_spec(spec)
    facts = ModelFacts(
        tuple(_field(found, "classes", list)),
        _field(found, "extractor", dict),
        tuple(_field(found, "input_shape", list)),
        _field(found, "dim", int),
    )
    _check_facts(facts, spec, _field_of(certificate, "settings"))
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        raise InvalidInput(WEIGHTS_FILE, sorted(weights)[:3], "the weights of the network in model.json") from None
    return TrainedModel(network, facts, certificate)


def _field(found: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(found.get(name), kind):
        raise InvalidInput(f"{MODEL_FILE}: {name}", found.get(name), f"a JSON {kind.__name__}")
    return found[name]


def _field_of(certificate: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = certificate.get(name)
    return found if isinstance(found, dict) else {}


def _check_facts(facts: ModelFacts, network: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Classes in another order, or a network with other options, would be other predictions."""
    stated = {"classes": list(facts.classes), "extractor": dict(facts.extractor), "network": dict(network)}
    for name, own in stated.items():
        if name in settings and settings[name] != own:
            raise InvalidInput(f"{MODEL_FILE}: {name}", own, "as in the certificate")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise StorageError(f"{path}: not valid JSON") from None
    if not isinstance(found, dict):
        raise StorageError(f"{path}: not what privmix wrote")
    return found
