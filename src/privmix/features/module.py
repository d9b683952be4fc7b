"""A network of one's own as an extractor: an exported program, or linear layers in safetensors."""

from __future__ import annotations

import hashlib
import io
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.features.identity import unit_range
from privmix.features.models import OwnModel, bare_name
from privmix.features.torch_encoder import TorchEncoder, channels_first, image_tensor
from privmix.packages import torch
from privmix.untrusted import MEBIBYTE, parse_json

if TYPE_CHECKING:
    from torch import Tensor

# Files that torch.export.save writes for one program. Weights and constants are raw numbers; code compiled ahead of
# time, objects and the older format, which all go through pickle or are machine code, have other names.
_PLAIN: Final = re.compile(
    r"\.format_version|\.data/(version|serialization_id)|version|byteorder|archive_format|archive_version"
    r"|models/model\.json|data/sample_inputs/model\.pt|data/weights/(model_weights_config\.json|weight_\d+)"
    r"|data/constants/(model_constants_config\.json|tensor_\d+)"
)
_INPUTS: Final = "data/sample_inputs/model.pt"
_CONFIGS: Final = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_MOST: Final = 64 * MEBIBYTE


def load_program(file: Path) -> Any:
    """``torch.export.load`` for trusted files; it unpickles tensors only, and the program runs when called."""
    allowed = "a program of torch.export.save with plain weights: no pickled objects, no compiled code"
    try:
        with zipfile.ZipFile(file) as archive:
            plain = _is_plain(archive)
    except Exception:
        plain = False
    if not plain:
        raise InvalidInput("module", file.name, allowed)
    return torch.export.load(file)


def _is_plain(archive: zipfile.ZipFile) -> bool:
    """Whether loading the archive unpickles nothing but tensors."""
    names: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        inside = entry.filename.partition("/")[2]
        # Readers differ in which of two entries of one name they take; compressed ones may grow without bound.
        if inside in names or not _PLAIN.fullmatch(inside) or entry.compress_type != zipfile.ZIP_STORED:
            return False
        names[inside] = entry
    for config in _CONFIGS:
        entries = _small_json(archive, names[config])["config"].values()
        if any(entry["use_pickle"] is not False for entry in entries):
            return False
    # torch reads these with its restricted unpickler first, and with pickle itself where that fails.
    content = archive.read(names[_INPUTS])
    if content:
        torch.load(io.BytesIO(content), weights_only=True)
    return True


def _small_json(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Any:
    if entry.file_size > _MOST:
        raise ValueError
    return parse_json(archive.read(entry), "module")


_PROGRAM: Final = ".pt2"
_FORMATS: Final = (_PROGRAM, ".safetensors")
_PROBES: Final = 4
_TOLERANCE: Final = 1e-4


class ModuleEncoder(TorchEncoder):
    """The output of a fixed network from a file, flattened.

    - ``.pt2``: an exported program (``torch.export.save``); if its batch axis is fixed, it must be of size 1.
    - ``.safetensors``: linear layers ``0.weight``, ``0.bias``, ``1.weight``, ... with ReLU between them (biases may be
      absent), on flattened inputs.

    A program runs code of the file, so a spec never opens one: the user names a trusted file and allows it to run.
    Inputs are float32: images in [0, 1] as (b, C, H, W), vectors as (b, d). Train it without the private records.

    Formal guarantees:
        - Per record, to the bit, as for :class:`~privmix.features.torch_encoder.TorchEncoder`. In addition, the output
          for a random input must not change by more than 1e-4 (of the largest output) with other inputs or earlier
          calls. Networks that do are refused, such as those that normalise by the batch or draw dropout.

    Args:
        model: the file; a spec holds its name, not its path.
        path: where the file lies, if not at the place that ``model`` names.
        precision, device, batch_size: see :class:`~privmix.features.torch_encoder.TorchEncoder`.
    """

    name: ClassVar[str] = "module"
    argument: ClassVar[str] = "FILE"

    def __init__(
        self,
        model: str,
        *,
        precision: str = "float32",
        path: str | Path | None = None,
        device: str = "auto",
        batch_size: int | None = None,
    ) -> None:
        super().__init__(precision=precision, device=device, batch_size=batch_size)
        self._file = Path(model if path is None else path).expanduser()
        self._public_name = Path(model).name
        self._dims: dict[tuple[int, ...], int] = {}
        _check_format(self._file.name)
        if not self._file.is_file():
            raise InvalidInput("module", str(self._file), "an existing file")

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        return cls(argument)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], own: OwnModel | None = None) -> Self:
        """Return the network in the user's own file; the name in a spec is for showing only."""
        name = bare_name(options.get("model"))
        _check_format(name)
        if own is None:
            raise InvalidInput("features_model", None, cls.wants(options) or "")
        if _is_program(own.path.name) and not own.trusted:
            allowed = "a .safetensors file; to run the program in .pt2, `features_model` FILE:trust"
            raise InvalidInput("features_model", own.path.name, allowed)
        return cls(**{**options, "model": name}, path=own.path)

    @classmethod
    def wants(cls, options: Mapping[str, Any]) -> str | None:
        name = str(options.get("model"))
        if Path(name).suffix not in _FORMATS:
            return "a version of privmix that reads TorchScript, as this one does not"
        trust = " with :trust after it, since the file is a program"
        return f"a copy of the file {name!r:.80}, named by `features_model`{trust if _is_program(name) else ''}"

    def options(self) -> dict[str, Any]:
        return {"model": self._public_name, "precision": self._precision}

    @cached_property
    def digests(self) -> dict[str, str]:
        with self._file.open("rb") as stream:
            return {"weights_sha256": hashlib.file_digest(stream, "sha256").hexdigest()}

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        """Length of the flattened output, found with one input of zeros; the network is checked on the way."""
        shape = tuple(input_shape)
        if shape not in self._dims:
            if len(shape) not in (1, 2, 3):
                raise InvalidInput("input shape for module", shape, "images (H, W), (H, W, C) or vectors (d,)")
            self._dims[shape] = self._probe(shape)
        return self._dims[shape]

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        dim = self.output_dim(x.shape[1:])
        if len(x) == 0:
            return np.empty((0, dim), np.float32)
        features = self._records(_inputs(x), self._network)
        if features.shape[1] != dim:
            raise InvalidInput("module", self._public_name, "a network with outputs of one length")
        return features

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """(b, H, W) or (b, H, W, C) -> (b, d), with gradients; in float32, one call for all."""
        if len(input_shape) not in (2, 3):
            raise InvalidInput(f"input shape for {self.name}", tuple(input_shape), "images (H, W) or (H, W, C)")
        self.output_dim(input_shape)
        network = self._network
        return lambda x: network(channels_first(x).to(self.device)).float().flatten(1).to(x.device)

    def _probe(self, shape: tuple[int, ...]) -> int:
        """Try zeros, then random inputs alone and together."""
        zeros = _inputs(np.zeros((1, *shape), np.float32)).to(self.device)
        allowed = f"a network for float32 inputs of shape (b, {', '.join(map(str, zeros.shape[1:]))})"
        network = self._network
        try:
            dim = int(self._call(network, zeros).shape[1])
        except Exception:
            raise InvalidInput("module", self._public_name, allowed) from None
        rng = np.random.default_rng(0)
        x = _inputs(rng.random((_PROBES, *shape), dtype=np.float32)).to(self.device)
        alone = torch.cat([self._call(self._network, x[row : row + 1]) for row in range(_PROBES)])
        try:
            together = self._call(self._network, x)
        except Exception:
            # An exported program may take one record only; then it never sees two.
            if self.batch_size > 1:
                raise InvalidInput("module", self._public_name, f"{allowed}, for any b; or batch_size=1") from None
            together = alone
        again = torch.cat([self._call(self._network, x[row : row + 1]) for row in range(_PROBES)])
        if not _close(alone, together):
            allowed = "a network for single records: its outputs depend on other records in the batch"
            raise InvalidInput("module", self._public_name, allowed)
        if not _close(alone, again):
            raise InvalidInput("module", self._public_name, "a network that gives the same output for the same record")
        return dim

    @cached_property
    def _network(self) -> Callable[[Tensor], Tensor]:
        load = _exported if _is_program(self._file.name) else _layers
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return load(self._file, self.device)
        except InvalidInput:
            raise
        except Exception:
            # Libraries' messages may quote the content.
            allowed = "an undamaged file of its format: exported program or safetensors"
            raise InvalidInput("module", str(self._file), allowed) from None


def _is_program(name: str) -> bool:
    return Path(name).suffix == _PROGRAM


def _check_format(name: str) -> None:
    """Raise unless a file of that name is read. Certificates may name TorchScript, which earlier versions read."""
    if Path(name).suffix not in _FORMATS:
        allowed = "a file that ends in .pt2 (torch.export.save; TorchScript is not read) or .safetensors"
        raise InvalidInput("module", name, allowed)


def _exported(file: Path, device: torch.device) -> Callable[[Tensor], Tensor]:
    network: Callable[[Tensor], Tensor] = load_program(file).module().to(device)
    return network


def _layers(file: Path, device: torch.device) -> Callable[[Tensor], Tensor]:
    from safetensors.torch import load_file

    tensors = {key: value.float().to(device) for key, value in load_file(file).items()}
    weights = [tensors.pop(f"{layer}.weight", None) for layer in range(len(tensors))]
    weights = [weight for weight in weights if weight is not None]
    biases = [tensors.pop(f"{layer}.bias", None) for layer in range(len(weights))]
    fits = weights and not tensors and all(weight.ndim == 2 for weight in weights)
    if not fits or any(after.shape[1] != before.shape[0] for before, after in pairwise(weights)):
        raise InvalidInput("module", str(file), "tensors 0.weight, 0.bias, 1.weight, ... of layers that fit each other")

    def call(x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            x = torch.nn.functional.linear(torch.relu(x) if layer else x, weight, bias)
        return x

    return call


def _inputs(x: NDArray[Any]) -> Tensor:
    if x.ndim == 2:
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    return image_tensor(unit_range(x))


def _close(first: Tensor, second: Tensor) -> bool:
    scale = max(1.0, float(first.abs().max())) if math.prod(first.shape) else 1.0
    return first.shape == second.shape and bool(torch.all((first - second).abs() <= _TOLERANCE * scale))
