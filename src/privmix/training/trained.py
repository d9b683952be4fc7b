"""A trained model: predictions from features, its folder, which is data, and its export."""

import copy
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor, nn

from privmix.certificate.certificate import CERTIFICATE_FILE, Certificate
from privmix.data.memory import as_array
from privmix.errors import WITHHELD, InvalidInput, StorageError
from privmix.folders import HeldFolder, held
from privmix.shown import Bars, Shown
from privmix.training.certificate import CARD_FILE, WEIGHTS_FILE, model_card, read_certificate
from privmix.training.examples import ModelFacts
from privmix.training.models.base import Classifier, model_from_spec, quiet_torch, without_memory
from privmix.training.models.own import OwnNetwork
from privmix.untrusted import array_shapes, open_plain, read_json

FORMAT: Final = "privmix-trained-model"
SCHEMA_VERSION: Final = 1
MODEL_FILE = "model.json"
_BATCH: Final = 512
# Limit on one batch, as the first layer sees it.
_MOST_VALUES: Final = 2**25


class NetworkClassifier:
    """A network that classifies extractor output by public facts."""

    network: Classifier
    facts_: ModelFacts

    def predict_proba(self, features: Any) -> NDArray[np.float32]:
        """(n, d) extractor output -> (n, classes) probabilities of the network; raise for unfit features."""
        return self._softmax(features, 1.0)

    def _softmax(self, features: Any, temperature: float) -> NDArray[np.float32]:
        x = as_array(features)
        if x.ndim != 2 or x.shape[1] != self.facts_.dim or x.dtype.kind not in "biuf":
            raise InvalidInput("features", x.shape, f"numbers of shape (n, {self.facts_.dim})")
        if not np.isfinite(x).all():
            raise InvalidInput("features", "values that are no finite numbers", "finite numbers")
        device = next(self.network.parameters()).device
        found = np.empty((len(x), len(self.facts_.classes)), np.float32)
        # Dropout is for training only: a record has the same prediction in every call.
        self.network.eval()
        with torch.no_grad():
            # A model's description decides how large the images are that its layers see.
            step = max(1, min(_BATCH, _MOST_VALUES // self.network.values_a_record(self.facts_.dim)))
            for start in range(0, len(x), step):
                part = torch.from_numpy(np.array(x[start : start + step], dtype=np.float32)).to(device)
                logits = self.network(shaped(part, self.network, self.facts_))
                found[start : start + step] = (temperature * logits.float()).softmax(dim=1).cpu().numpy()
        return found

    def calibrated_proba(self, features: Any) -> NDArray[np.float32]:
        """As :meth:`predict_proba`, at the network's temperature: calibrated probabilities."""
        if (temperature := self.network.temperature) == 1:
            return self.predict_proba(features)
        return self._softmax(features, temperature)

    def predict(self, features: Any) -> NDArray[np.int64]:
        """(n, d) extractor output -> (n,) class indices."""
        return np.asarray(self.predict_proba(features).argmax(axis=1), dtype=np.int64)


@dataclass(eq=False, repr=False)
class TrainedModel(Shown, NetworkClassifier):
    """A network with its facts and its certificate."""

    network: Classifier
    facts_: ModelFacts
    certificate: Certificate

    def shown(self) -> tuple[str, Mapping[str, object]]:
        promise, facts = self.certificate, self.facts_
        return "Trained model", {
            **promise.lead(),
            "network": self.network.name,
            "features, classes": f"{facts.dim:,}, {len(facts.classes):,}",
        }

    def picture(self) -> Bars | None:
        return self.certificate.picture()

    def write(self, folder: Path | HeldFolder) -> None:
        """Write the model's files into an existing folder; into one that is held, by its descriptor."""
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
        with held(folder) as place:
            place.write(WEIGHTS_FILE, weights_bytes(self.network), shared=True)
            place.write(MODEL_FILE, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode(), shared=True)
            place.write(CARD_FILE, model_card(self.certificate).encode(), shared=True)
            # The certificate comes last, so that an interrupted write leaves no folder that passes for a model.
            place.write(CERTIFICATE_FILE, self.certificate.to_bytes(), shared=True)


def shaped(x: torch.Tensor, network: Classifier, facts: ModelFacts) -> torch.Tensor:
    """Vectors (..., d) as the network takes them; raise where it takes images and they are none."""
    if not network.takes_images:
        return x
    layout = facts.layout
    if layout is None:
        raise InvalidInput("model", network.name, "linear, for features that are no pixels of images")
    return layout.to_images(x)


def weights_bytes(network: nn.Module) -> bytes:
    # Clones: the file has every name of tied weights.
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in network.state_dict().items()}
    return bytes(dump_tensors(tensors))


def weights_digest(network: Classifier) -> str:
    return hashlib.sha256(weights_bytes(network)).hexdigest()


def load_trained(folder: str | Path, module: Any = None) -> TrainedModel:
    """Read a model's folder; it predicts exactly as the trained one did.

    Formal guarantees:
        * The folder is data: nothing of it is run, no path or address that it names is opened, and no link followed.
        * Memory: the network is compared with the header of the weights file before it is built.
    """
    # module: of a user's own network, or ``torch:FILE.py:NAME``; without it the model predicts nothing.
    path = Path(folder)
    found = read_json(path / MODEL_FILE, MODEL_FILE)
    if not isinstance(found, dict):
        raise StorageError(f"{path / MODEL_FILE}: not what privmix wrote")
    if found.get("format") != FORMAT or found.get("schema_version") != SCHEMA_VERSION:
        raise InvalidInput(str(path / MODEL_FILE), found.get("format"), f"{FORMAT}, version {SCHEMA_VERSION}")
    certificate = read_certificate(path)
    facts = ModelFacts(
        tuple(_field(found, "classes", list)),
        _field(found, "extractor", dict),
        tuple(_field(found, "input_shape", list)),
        _field(found, "dim", int),
    )
    spec = _field(found, "network", dict)
    # Classes in another order, or a network with other options, would be other predictions.
    stated = {"classes": list(facts.classes), "extractor": dict(facts.extractor), "network": dict(spec)}
    for name, own_value in stated.items():
        if certificate["settings"].get(name, own_value) != own_value:
            raise InvalidInput(f"{MODEL_FILE}: {name}", own_value, "as in the certificate")
    own = None
    if module is not None:
        if spec.get("architecture") != OwnNetwork.name:
            raise InvalidInput("module", WITHHELD, "none: the network is one of privmix's own")
        own = OwnNetwork.of(module, facts, certificate["settings"].get("model_seed", 0))
    network = _read_network(path, spec, str(certificate["files"][0]["sha256"]), own)
    if isinstance(network, OwnNetwork):
        network.check_facts(facts)
    else:
        _check_fit(network, facts)
    return TrainedModel(network, facts, certificate)


def initial_network(model: TrainedModel, module: Any) -> OwnNetwork | None:
    """Return a user's own network with its initial weights, from ``module``; None for those of privmix."""
    if not isinstance(model.network, OwnNetwork):
        return None
    found = OwnNetwork.of(module, model.facts_, model.certificate["settings"].get("model_seed", 0))
    if found.options() != model.network.options():
        allowed = "the module with the weights that training began with: its digest is in the certificate"
        raise InvalidInput("module", found.title, allowed)
    return found


def _read_network(folder: Path, spec: Mapping[str, Any], sha256: str, own: OwnNetwork | None) -> Classifier:
    path = folder / WEIGHTS_FILE
    shapes = {name: shape for name, (_, shape) in array_shapes(path, WEIGHTS_FILE).items()}
    with open_plain(path, WEIGHTS_FILE) as stream:
        content = stream.read()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InvalidInput(WEIGHTS_FILE, "other bytes", "the weights that the certificate is about")
    if "graph_sha256" in spec:
        allowed = (
            "a network that privmix has, or weights alone: train again, or load the weights into your module by "
            "`safetensors.torch.load_file`, without `module.` in front of their names"
        )
        raise InvalidInput(MODEL_FILE, "a network as a list of operations, of an earlier version", allowed)
    network = model_from_spec(spec, shapes)
    try:
        tensors = load_tensors(content)
        if not isinstance(network, OwnNetwork):
            network.load_state_dict(tensors)
            return network
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        raise InvalidInput(WEIGHTS_FILE, sorted(shapes)[:3], "the weights of the network in model.json") from None
    if own is not None:
        if {**own.options(), "initial_sha256": network.initial_sha256} != network.options():
            raise InvalidInput("module", own.title, "the module that was trained: this one takes another shape")
        own.initial_sha256, network = network.initial_sha256, own
    network.set_weights(tensors)
    return network


def _check_fit(network: Classifier, facts: ModelFacts) -> None:
    """Raise unless the network takes such features and has this number of classes; by shapes, without memory."""
    was_training = network.training
    network.eval()
    try:
        # The meta device computes shapes alone, so a forged description takes no memory.
        with torch.device("meta"), torch.no_grad():
            one = shaped(torch.empty(1, facts.dim), network, facts)
            fits = torch.func.functional_call(network, without_memory(network), (one,)).shape == (1, len(facts.classes))
    except Exception:
        fits = False
    finally:
        network.train(was_training)
    if not fits:
        found = (facts.input_shape, facts.dim, len(facts.classes))
        raise InvalidInput(f"{MODEL_FILE}: input_shape, dim, classes", found, "those of the network")


def _field(found: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(found.get(name), kind):
        raise InvalidInput(f"{MODEL_FILE}: {name}", found.get(name), f"a JSON {kind.__name__}")
    return found[name]


# A batch that the network is traced with, and another one, which it must be right for.
_TRACED: Final = 2
_TRIED: Final = 5
_TOLERANCE: Final = 1e-4


def weights(model: TrainedModel) -> bytes:
    """Return the weights as safetensors by ``state_dict`` names, for ``load_state_dict(load_file(FILE))``."""
    return weights_bytes(model.network.module if isinstance(model.network, OwnNetwork) else model.network)


def program(model: TrainedModel) -> bytes:
    """Bytes for ``torch.export.load(FILE).module()(x)``; raise where the forward pass is no fixed list of steps."""
    network, example = _ready(model, _TRACED)
    stream = io.BytesIO()
    try:
        with quiet_torch(), torch.no_grad():
            found = torch.export.export(
                network, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False
            )
            torch.export.save(found, stream)
            stream.seek(0)
            # For a batch of another size, too.
            network, example = _ready(model, _TRIED)
            wanted, written = network(example), torch.export.load(stream).module()(example)
            if not torch.allclose(wanted, written, _TOLERANCE, _TOLERANCE):
                raise ValueError("other outputs")
    except InvalidInput:
        raise
    except Exception as error:
        why = (str(error).strip().splitlines() or [""])[0][:120]
        allowed = f".safetensors: this network cannot be written so ({type(error).__name__}: {why})"
        raise InvalidInput("out", ".pt2", allowed) from None
    return stream.getvalue()


FORMS: Final[Mapping[str, Callable[[TrainedModel], bytes]]] = MappingProxyType(
    {".pt2": program, ".safetensors": weights}
)
"""Ending of a file -> what makes its bytes."""


def _ready(model: TrainedModel, records: int) -> tuple[nn.Module, Tensor]:
    network = copy.deepcopy(model.network).cpu().eval().requires_grad_(False)
    x = torch.rand(records, model.facts_.dim, generator=torch.Generator().manual_seed(records))
    x = shaped(x, network, model.facts_).clone(memory_format=torch.contiguous_format)
    if not isinstance(network, OwnNetwork):
        return network, x
    # Raises without the module.
    network(x)
    return network.module, network.inputs(x)
