"""A network of the user's own: any :class:`torch.nn.Module` that treats each record alone. Its folder holds weights."""

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from privmix.errors import InvalidInput, StorageError
from privmix.training.config import OWN, OWN_PREFIX
from privmix.training.models.base import MODELS, Classifier, Wanted, is_out_of_memory, quiet_torch, seeded
from privmix.training.models.layers_check import check_independence, check_model, keep_in_evaluation

if TYPE_CHECKING:
    from privmix.training.examples import ModelFacts

# Folders hold no code: the authors of TorchScript and torch.export call their loaders unsafe. A JSON list of allowed
# ATen operations let a file write past a buffer, since kernels do not check their arguments.
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_MODULE: Final = "module"
_TOLERANCE: Final = 1e-4
_RECORDS: Final = 4
_GIVE: Final = "the torch.nn.Module that was trained, as `module`: the folder has its weights and none of its code"


@MODELS.register
class OwnNetwork(Classifier):
    """A user's own module; :meth:`of` checks one and wraps a copy. Loading saved weights needs it again."""

    # Images are (b, C, H, W) in [0, 1] where `takes_images`; else vectors (b, d), in `record_shape` if there is one.
    # initial_sha256: of the weights that training starts from. A `module` of None has weights alone.

    name: ClassVar[str] = "module"
    called: ClassVar[str] = "torch:FILE.py:NAME or torch:PACKAGE.MODULE:NAME (a torch.nn.Module of your own)"
    takes_images: ClassVar[bool] = True

    def __init__(
        self,
        *,
        classes: int,
        takes_images: bool,
        initial_sha256: str,
        record_shape: Sequence[int] | None = None,
        module: nn.Module | None = None,
    ) -> None:
        super().__init__(classes)
        if type(takes_images) is not bool or not isinstance(initial_sha256, str) or not _HASH.fullmatch(initial_sha256):
            raise InvalidInput("network", "other values", "what privmix writes of a network of the user's own")
        # An object's own: modules differ in it.
        self.__dict__["takes_images"] = takes_images
        self.record_shape: Final = None if record_shape is None else tuple(record_shape)
        self.initial_sha256: str = initial_sha256
        self.computes: Final = module is not None
        self.module: Final = nn.Module() if module is None else module

    @classmethod
    def of_name(cls, name: str, wanted: Wanted) -> Self | None:
        """Return None: a name stands for code, which :func:`own_module` runs; settings alone contain ``module``."""
        if name == OWN:
            raise InvalidInput("module", None, _GIVE)
        return None

    @classmethod
    def of(cls, module: Any, facts: ModelFacts, seed: int = 0) -> Self:
        """Check a module and wrap a copy of it.

        Formal guarantees:
            * Each record alone: a layer is refused that mixes the records of a batch, keeps something of them, is
              random, or looks at values to decide what to do. The checks are known facts on it, a run in which no value
              can be looked at, and trials on public random inputs.
            * Public: nothing here has seen a private record.
        """
        # A module gives logits (b, classes) of images (b, C, H, W), vectors (b, d) or records in their shape. A text
        # names one for `own_module`; `seed` draws its weights. Parameters without `requires_grad` are not trained.
        # Batch normalisation that is frozen and in evaluation mode stays so, as does dropout in evaluation mode.
        if isinstance(module, str) and module.startswith(OWN_PREFIX):
            module = own_module(module, seed)
        if module is None:
            raise InvalidInput("module", None, _GIVE)
        if not isinstance(module, nn.Module):
            raise InvalidInput("model", type(module).__name__, f"a torch.nn.Module, or {cls.called}")
        try:
            own = copy.deepcopy(module).cpu().float()
        except Exception:
            raise InvalidInput("model", type(module).__name__, "a module that copy.deepcopy can copy") from None
        keep_in_evaluation(own)
        own.train()
        check_model(own)
        images = None if facts.layout is None else facts.layout.shape
        with seeded(0):
            shape = _shape_of(own, images, facts)
            check_independence(own, shape)
            _check_values(own, shape)
            trial, x = copy.deepcopy(own), torch.rand(_RECORDS, *shape)
            with torch.no_grad():
                wanted, found = trial.train()(x), trial.eval()(x)
        if wanted.shape != found.shape or not torch.allclose(wanted, found, _TOLERANCE, _TOLERANCE, equal_nan=True):
            allowed = "a module with the same output in train and evaluation mode"
            raise InvalidInput("model", type(own).__name__, allowed)
        return cls(
            classes=len(facts.classes),
            takes_images=shape == images,
            initial_sha256=digest_of(own.state_dict()),
            record_shape=None if shape in (images, (facts.dim,)) else shape,
            module=own,
        )

    def forward(self, x: Tensor) -> Tensor:
        if not self.computes:
            raise InvalidInput("module", None, _GIVE)
        try:
            logits: Tensor = self.module(self.inputs(x))
            return logits
        except Exception as error:
            if is_out_of_memory(error):
                raise
            # A module's messages on its input may reveal facts on records, their number at least.
            said = f"a module that takes any batch of its shape; its forward pass raised {type(error).__name__}"
        raise InvalidInput("model", self.title, said)

    def inputs(self, x: Tensor) -> Tensor:
        """Return the input of the module, with contiguous strides: the module may view its input itself."""
        return x.flatten().view(x.shape if self.record_shape is None else (len(x), *self.record_shape))

    @property
    def title(self) -> str:
        return type(self.module).__name__ if self.computes else self.name

    def options(self) -> dict[str, Any]:
        found = {"classes": self.classes, "takes_images": self.takes_images, "initial_sha256": self.initial_sha256}
        return found if self.record_shape is None else {**found, "record_shape": list(self.record_shape)}

    def check_facts(self, facts: ModelFacts) -> None:
        """Raise :class:`InvalidInput` unless a spec without a module goes with these facts."""
        layout, shape = facts.layout, self.record_shape
        if self.takes_images:
            fits = layout is not None and layout.dim == facts.dim and shape is None
        else:
            fits = shape in (None, tuple(facts.input_shape))
        if not fits or self.classes != len(facts.classes):
            raise InvalidInput("network", "other classes or another shape", "those of the model")

    def set_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Load a folder's weights by name, type and shape, or keep them where there is no module; raise for others."""
        own = {name.removeprefix(f"{_MODULE}."): tensor for name, tensor in tensors.items()}
        if len(own) != len(tensors) or not all(name.startswith(f"{_MODULE}.") for name in tensors):
            raise InvalidInput("weights", "other names", f"names that begin with {_MODULE}.")
        if self.computes:
            wanted, found = _arrays(self.module.state_dict()), _arrays(own)
            if wanted != found:
                odd = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))[0]
                allowed = f"the module that was trained: it has {found.get(odd, 'nothing')} as {odd!s:.64}"
                raise InvalidInput("module", wanted.get(odd, "nothing"), allowed)
            self.module.load_state_dict(own)
            return
        for name, tensor in own.items():
            # Names have points, as those of a module's state have.
            if tensor.is_floating_point():
                self.module._parameters[name] = nn.Parameter(tensor)
            else:
                self.module._buffers[name] = tensor


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values; which network training starts from."""
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        array = tensor.detach().cpu().contiguous()
        found.update(json.dumps([name, str(array.dtype).removeprefix("torch."), list(array.shape)]).encode())
        found.update(
            array.view(torch.uint8).numpy().tobytes() if array.numel() and array.dim() else repr(array).encode()
        )
    return found.hexdigest()


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {
        name: f"{str(one.dtype).removeprefix('torch.')} of shape {tuple(one.shape)}" for name, one in tensors.items()
    }


def _shape_of(module: nn.Module, images: Sequence[int] | None, facts: ModelFacts) -> tuple[int, ...]:
    """Return the record shape that the module takes, by trial: an image, a record's own shape, else a vector."""
    own = facts.input_shape if facts.extractor.get("name") == "identity" else (facts.dim,)
    shapes = list(dict.fromkeys([*([] if images is None else [tuple(images)]), tuple(own), (facts.dim,)]))
    classes, reasons = len(facts.classes), []
    for shape in shapes:
        try:
            with torch.no_grad():
                found = copy.deepcopy(module)(torch.rand(2, *shape))
        except Exception as error:
            reasons.append(f"{type(error).__name__} for records of shape {shape}")
            continue
        if not isinstance(found, Tensor):
            reasons.append(f"it gives a {type(found).__name__}: let `forward` return the tensor of logits alone")
        elif tuple(found.shape) != (2, classes):
            reasons.append(f"it gives {tuple(found.shape)} for two records")
        elif (found >= 0).all() and torch.allclose(found.sum(1), torch.ones(2), atol=_TOLERANCE):
            reasons.append("its outputs are probabilities: leave out the softmax at its end")
        else:
            return shape
    wanted = " or ".join(f"(b, {', '.join(map(str, shape))})" for shape in shapes)
    allowed = f"a module from {wanted} to (b, {classes}) logits: {'; '.join(reasons)}"
    raise InvalidInput("model", type(module).__name__, allowed)


def _check_values(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Raise where the forward pass looks at values to decide what to do: another record could have decided it."""
    trial, x = copy.deepcopy(module), torch.rand(_RECORDS, *shape)
    try:
        with quiet_torch(), torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
            trial(mode.from_tensor(x))
        return
    except Exception as error:
        said = type(error).__name__
    allowed = (
        "a module that does the same for all values of its input; without values its forward pass raises "
        f"{said}. Remove assertions, branches and loops on values (use torch.where), and calls outside torch"
    )
    raise InvalidInput("model", type(module).__name__, allowed)


def own_module(named: str, seed: int) -> nn.Module:
    """Run the user's code in ``torch:FILE.py:NAME`` or ``torch:PACKAGE.MODULE:NAME`` and return its module."""
    # NAME is a module, or gives one when called without arguments; `seed` is of its weights.
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
        raise InvalidInput("model", named, f"a name that returns a module without arguments: {error}") from None
    if not isinstance(found, nn.Module):
        raise InvalidInput("model", named, "a torch.nn.Module, or a function that returns one")
    return found
