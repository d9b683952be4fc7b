"""A network of the user's own: any :class:`torch.nn.Module` that treats each record alone, kept without its code."""

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn

from privmix.errors import InvalidInput, StorageError
from privmix.training.config import OWN, OWN_PREFIX
from privmix.training.models.base import MODELS, Classifier, Wanted, is_out_of_memory, seeded
from privmix.training.models.graph import CONSTANTS, MODULE, Graph, digest_of, graph_bytes, written
from privmix.training.models.layers_check import check_independence, check_model

NETWORK_FILE: Final = "network.json"
_TOLERANCE: Final = 1e-4
_RECORDS: Final = 4


@MODELS.register
class OwnNetwork(Classifier):
    """A module of the user's own; :meth:`of` checks one and wraps it.

    While it is trained it is the module itself, a copy. What is kept is the list of its operations
    (:mod:`privmix.training.models.graph`), which stands in a file of its own beside the weights, so that a model's
    folder is data and whoever loads it needs none of the user's code.

    Args:
        classes: number of logits.
        takes_images: whether it takes images (b, C, H, W) in [0, 1], or vectors (b, d).
        graph_sha256: of the file with its operations.
        initial_sha256: of the weights that training starts from.
        files: the file with its operations, by its name.

    Raises:
        InvalidInput: the file is another one, or no list of operations that privmix knows.
    """

    name: ClassVar[str] = "module"
    called: ClassVar[str] = "torch:FILE.py:NAME or torch:PACKAGE.MODULE:NAME (a torch.nn.Module of your own)"
    takes_images: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = (NETWORK_FILE,)

    def __init__(
        self,
        *,
        classes: int,
        takes_images: bool,
        graph_sha256: str,
        initial_sha256: str,
        files: Mapping[str, bytes],
        model: tuple[nn.Module, Mapping[str, Tensor]] | None = None,
    ) -> None:
        super().__init__(classes)
        content = files.get(NETWORK_FILE, b"")
        if hashlib.sha256(content).hexdigest() != graph_sha256:
            raise InvalidInput(NETWORK_FILE, "other bytes", "the network that the certificate is about")
        # An object's own: modules differ in it.
        self.__dict__["takes_images"] = bool(takes_images)
        self._content, self._largest = content, 1
        self._graph_sha256, self._initial_sha256 = str(graph_sha256), str(initial_sha256)
        self._graph: Graph | None = None
        if model is None:
            self._graph = Graph(content, self)
        else:
            self.module, constants = model
            if constants:
                self.constants = nn.Module()
                for name, tensor in constants.items():
                    self.constants.register_buffer(name.removeprefix(f"{CONSTANTS}."), tensor)

    @classmethod
    def of_name(cls, name: str, wanted: Wanted) -> Self | None:
        """None: a name stands for code, which :func:`own_module` runs; settings alone say ``module``."""
        if name == OWN:
            raise InvalidInput("model", name, "the module itself: to train anew, such a network needs its own code")
        return None

    @classmethod
    def of(cls, module: Any, *, images: Sequence[int] | None, dim: int, classes: int) -> Self:
        """Check a module and wrap a copy of it; the module itself stays as it is.

        Formal guarantees:
            * Each record alone: a layer that mixes the records of a batch, keeps something of them or is random is
              refused, by what is known of it, by its operations, and by trying on public random inputs.
            * Public: nothing here has seen a private record.

        Args:
            module: takes images (b, C, H, W) or vectors (b, d), and gives logits (b, classes). What it shall not train
                has ``requires_grad`` False.
            images: (C, H, W) where records are images.
            dim: d of vectors.
            classes: number of classes.

        Raises:
            InvalidInput: names the layer, and what to do.

        Example:
            >>> network = OwnNetwork.of(nn.Linear(4, 3), images=None, dim=4, classes=3)
            >>> network(torch.zeros(2, 4)).shape, network.spec()["architecture"]
            (torch.Size([2, 3]), 'module')
            >>> wrong = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
            >>> OwnNetwork.of(wrong, images=None, dim=4, classes=3)  # doctest: +ELLIPSIS
            Traceback (most recent call last):
            ...
            privmix.errors.InvalidInput: layer 1 of the model: got 'BatchNorm1d'; allowed: GroupNorm or LayerNorm...
        """
        if not isinstance(module, nn.Module):
            raise InvalidInput("model", type(module).__name__, "a name, or a torch.nn.Module")
        check_model(module)
        try:
            own = copy.deepcopy(module).cpu().float().train()
        except Exception:
            raise InvalidInput("model", type(module).__name__, "a module that copy.deepcopy can copy") from None
        with seeded(0):
            shape = _shape_of(own, images, dim, classes)
            check_independence(own, shape)
            operations, constants = written(own, shape)
        content = graph_bytes(operations)
        found = cls(
            classes=classes,
            takes_images=len(shape) == 3 and images is not None,
            graph_sha256=hashlib.sha256(content).hexdigest(),
            initial_sha256=digest_of(own.state_dict()),
            files={NETWORK_FILE: content},
            model=(own, constants),
        )
        found._check_kept(shape)
        return found

    def _check_kept(self, shape: tuple[int, ...]) -> None:
        """Raise unless the list of operations gives what the module gives while it is trained."""
        with seeded(0), torch.no_grad():
            kept = type(self)(**self.options(), files={NETWORK_FILE: self._content})
            kept.load_state_dict(self.state_dict())
            x = torch.rand(_RECORDS, *shape)
            wanted, found = self.train()(x), kept.eval()(x)
        if wanted.shape != found.shape or not torch.allclose(wanted, found, _TOLERANCE, _TOLERANCE, equal_nan=True):
            allowed = "a module that gives the same in train and in evaluation mode, for all inputs of its shape"
            raise InvalidInput("model", type(self.module).__name__, allowed)

    def forward(self, x: Tensor) -> Tensor:
        """(b, C, H, W) in [0, 1], or (b, d) -> (b, classes) logits."""
        # Images come as views of vectors. A module may view them itself, for which strides must be the usual ones, also
        # those of axes of length 1.
        x = x.flatten().view(x.shape)
        if self._graph is None:
            logits = self._answer(x)
        elif x.is_meta:
            logits, self._largest = self._graph.measured(x)
        else:
            logits = self._graph.computed(x)
        return logits

    def _answer(self, x: Tensor) -> Tensor:
        try:
            logits: Tensor = self.module(x)
            return logits
        except Exception as error:
            if is_out_of_memory(error):
                raise
            # What a module says of its input may tell of records, their number at least.
            said = f"a module that takes any batch of its shape; its forward pass raised {type(error).__name__}"
        raise InvalidInput("model", type(self.module).__name__, said)

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor, but for the file that :meth:`beside` gives."""
        return {
            "classes": self.classes,
            "takes_images": self.takes_images,
            "graph_sha256": self._graph_sha256,
            "initial_sha256": self._initial_sha256,
        }

    def beside(self) -> Mapping[str, bytes]:
        """The file with its operations."""
        return {NETWORK_FILE: self._content}

    @property
    def is_recurrent(self) -> bool:
        """Whether its list of operations, where it is computed from that, has recurrent layers."""
        return self._graph is not None and self._graph.is_recurrent

    def values_a_record(self, dim: int) -> int:
        """The most numbers that one of its operations gives for a record."""
        return max(dim, self._largest)


def _shape_of(module: nn.Module, images: Sequence[int] | None, dim: int, classes: int) -> tuple[int, ...]:
    """The shape of a record that the module takes, found by trying: an image, else a vector."""
    shapes = [tuple(images), (dim,)] if images is not None else [(dim,)]
    reasons = []
    for shape in shapes:
        try:
            with torch.no_grad():
                found = copy.deepcopy(module)(torch.rand(2, *shape))
        except Exception as error:
            reasons.append(f"{type(error).__name__} for records of shape {shape}")
            continue
        if not isinstance(found, Tensor):
            reasons.append(f"it gives a {type(found).__name__}")
        elif tuple(found.shape) != (2, classes):
            reasons.append(f"it gives {tuple(found.shape)} for two records")
        else:
            return shape
    wanted = " or ".join(f"(b, {', '.join(map(str, shape))})" for shape in shapes)
    allowed = f"a module from {wanted} to (b, {classes}) logits: {'; '.join(reasons)}"
    raise InvalidInput("model", type(module).__name__, allowed)


def own_module(named: str, seed: int) -> nn.Module:
    """The module that a text names: user's code, which this runs.

    Args:
        named: ``torch:FILE.py:NAME`` or ``torch:PACKAGE.MODULE:NAME``; NAME is a module, or gives one when it is called
            without arguments.
        seed: of its weights.

    Raises:
        InvalidInput: there is no such module.
        StorageError: the file can't be read.
    """
    place, _, name = named.removeprefix(OWN_PREFIX).rpartition(":")
    allowed = f"{OWN_PREFIX}FILE.py:NAME or {OWN_PREFIX}PACKAGE.MODULE:NAME"
    if not place or not name.isidentifier():
        raise InvalidInput("model", named, allowed)
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise StorageError(f"model: there is no file {place}")
        spec = importlib.util.spec_from_file_location(f"privmix_own_{Path(place).stem}", place)
        assert spec is not None
        assert spec.loader is not None
        source = importlib.util.module_from_spec(spec)
        # Classes of it find their module by name.
        sys.modules[spec.name] = source
        with seeded(seed):
            spec.loader.exec_module(source)
    else:
        try:
            with seeded(seed):
                source = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise InvalidInput("model", named, f"{allowed}; there is no module {error.name}") from None
    if not hasattr(source, name):
        raise InvalidInput("model", named, f"{allowed}; {place} has no {name}")
    found = getattr(source, name)
    if isinstance(found, nn.Module):
        return found
    try:
        with seeded(seed):
            found = found()
    except TypeError as error:
        raise InvalidInput("model", named, f"a name that gives a module without arguments: {error}") from None
    if not isinstance(found, nn.Module):
        raise InvalidInput("model", named, "a torch.nn.Module, or what gives one when it is called")
    return found


def state_of_module(network: OwnNetwork) -> dict[str, Tensor]:
    """The module's own ``state_dict``, by its own names."""
    prefix = f"{MODULE}."
    return {
        name.removeprefix(prefix): tensor for name, tensor in network.state_dict().items() if name.startswith(prefix)
    }
