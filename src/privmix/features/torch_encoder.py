"""Base of encoders on torch: device, precision, weights in the spec, and one result a record in any batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.devices import chosen_device, full_precision
from privmix.errors import InvalidInput, check_choice, check_integer
from privmix.features import models
from privmix.features.base import Extractor
from privmix.packages import torch

if TYPE_CHECKING:
    from torch import Tensor

PRECISIONS: Final = ("float32", "float16", "bfloat16")
_GPU_BATCH: Final = 64


class TorchEncoder(Extractor):
    """An extractor that runs a fixed network.

    Formal guarantees:
        - Per record, to the bit: for any number of records, every call of the network has the same shape for records of
          the same shape. A call has one record on the CPU; on a GPU it is a batch of a constant size, filled up with
          copies. On the CPU a feature vector is thus a function of its own record by construction, given that the same
          call gives the same bits. On a GPU the guarantee rests on kernels that treat the rows of a batch of fixed
          shape alike. Libraries do so but don't promise it; ``batch_size=1`` does without that assumption.
        - Nothing is fitted: evaluation mode, no gradients, no batch statistics, no random numbers.
        - The spec holds digests of the weights and never a path of this machine.

    Another device, thread count or library version may change the last bits of all rows alike. :meth:`runtime` names
    them, and an interrupted extraction is only resumed where they are equal.

    Args:
        precision: ``"float32"``, on a GPU too (no TF32), or autocast there to ``"float16"`` or ``"bfloat16"``; the CPU
            always uses float32.
        device: see :func:`privmix.devices.chosen_device`.
        batch_size: records a call; by default 1 on the CPU and 64 on a GPU.
    """

    step: ClassVar[int] = 256
    digest_names: ClassVar[tuple[str, ...]] = ("weights_sha256",)

    def __init__(self, *, precision: str = "float32", device: str = "auto", batch_size: int | None = None) -> None:
        self._precision = check_choice("precision", precision, PRECISIONS)
        self._device_name = device
        self._batch_size = None if batch_size is None else check_integer("batch_size", batch_size, low=1)

    @cached_property
    def device(self) -> torch.device:
        return chosen_device(self._device_name)

    def __getstate__(self) -> dict[str, Any]:
        """Without the device: on another machine there may be another one."""
        return {name: value for name, value in vars(self).items() if name != "device"}

    @classmethod
    def check_stated(cls, options: Mapping[str, Any]) -> None:
        """Scalars, a plain name or one of the hub, a commit, and a precision that there is."""
        super().check_stated(options)
        check_choice("precision", options.get("precision", "float32"), PRECISIONS)
        if "model" in options and not models.is_hub_name(options["model"]):
            models.bare_name(options["model"])
        if options.get("revision") is not None and not models.is_commit(options["revision"]):
            raise InvalidInput("revision", options["revision"], "a commit")

    @property
    def batch_size(self) -> int:
        if self._batch_size is not None:
            return self._batch_size
        return 1 if self.device.type == "cpu" else _GPU_BATCH

    @property
    @abstractmethod
    def digests(self) -> dict[str, str]:
        """Digests that identify the model: ``weights_sha256``, and ``files_sha256`` where it has configuration."""

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), **self.digests}

    def runtime(self) -> dict[str, Any]:
        """Device, threads, records a call and torch's version; on a GPU also that float32 is no TF32."""
        on_gpu = self.device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self.device) if on_gpu else torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "batch_size": self.batch_size,
            "torch": torch.__version__,
            **({"tf32": False} if on_gpu else {}),
        }

    def _records(self, x: Tensor, forward: Callable[[Tensor], Tensor], size: int | None = None) -> NDArray[np.float32]:
        """Apply ``forward`` in calls of ``size`` (by default ``batch_size``) records: (b, ...) -> (b, d), b >= 1."""
        parts, size = [], self.batch_size if size is None else size
        for start in range(0, len(x), size):
            part = x[start : start + size]
            # Always the same shape: a kernel may sum in another order where the shape is another.
            spare = size - len(part)
            filled = torch.cat([part, part[-1:].expand(spare, *part.shape[1:])]) if spare else part
            parts.append(self._call(forward, filled.to(self.device))[: len(part)])
        return torch.cat(parts).numpy()

    def _call(self, forward: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """One call without gradients, in the wanted precision; (b, d) float32 on the CPU comes back."""
        whole = self._precision == "float32" or self.device.type != "cuda"
        precise = (
            full_precision(self.device) if whole else torch.autocast("cuda", dtype=getattr(torch, self._precision))
        )
        with torch.inference_mode(), precise:
            return forward(*inputs).float().cpu().flatten(1)


class PretrainedEncoder(TorchEncoder):
    """An encoder whose model is a folder on this machine, or OWNER/NAME on the Hugging Face hub."""

    # The spec holds the name of the folder, never its path, and of a hub model its revision (by default the newest).
    # path: where the files lie, if not at the place that the name gives.

    argument: ClassVar[str] = "MODEL"
    digest_names: ClassVar[tuple[str, ...]] = ("weights_sha256", "files_sha256")
    extra: ClassVar[str]

    def __init__(
        self, model: str, *, revision: str | None = None, path: str | Path | None = None, **running: Any
    ) -> None:
        super().__init__(**running)
        self._model_name, self._revision, self._path = str(model), revision, path
        # A user may have a model fetched by naming it; a spec may not.
        self._fetches = True

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """``NAME:MODEL``: a folder or a name on the hub."""
        encoder = cls(argument)
        # A name that can only be a folder is looked for at once; a name on the hub when it is needed.
        if argument.count("/") != 1 or argument.startswith((".", "~", "/")):
            _ = encoder._located
        return encoder

    @classmethod
    def from_options(cls, options: Mapping[str, Any], own: models.OwnModel | None = None) -> Self:
        """Rebuild it with the user's own copy of the model, or the one in the hub's local cache."""
        # Anyone may have written a spec: it opens no folder by its name, and downloads nothing.
        model = options.get("model")
        on_hub = models.is_hub_name(model)
        if not on_hub:
            # Asking the hub for a private folder's name would reveal the name, and bring another model.
            models.bare_name(model)
        if own is not None:
            return cls(**options, path=own.path)
        if not on_hub or not models.is_commit(options.get("revision")):
            raise InvalidInput("features_model", None, f"the folder that holds a copy of the model {model}")
        encoder = cls(**options)
        encoder._fetches = False
        return encoder

    @classmethod
    def wants(cls, options: Mapping[str, Any]) -> str | None:
        model = str(options.get("model"))
        if models.is_hub_name(model) and models.is_commit(options.get("revision")):
            return f"the model {model} in the local cache of the Hugging Face hub, or a copy named by `features_model`"
        return f"the folder that holds a copy of the model {model!r:.80}, named by `features_model`"

    @cached_property
    def _located(self) -> models.Located:
        if self._path is None and not self._fetches:
            return models.cached(self._model_name, str(self._revision), self.extra)
        return models.locate(self._model_name, self._revision, self._path, self.extra)

    @property
    def _public_name(self) -> str:
        return models.public_name(self._model_name, self._path)

    @property
    @abstractmethod
    def _weights(self) -> Mapping[str, Tensor]:
        """The tensors that were loaded."""

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of the weights, and of the files that define the computation with them."""
        return {
            "weights_sha256": models.weights_digest(self._weights),
            "files_sha256": models.files_digest(self._located.folder),
        }


def freeze(model: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    return model.eval().requires_grad_(False).to(device)


def unit_rows(x: Tensor) -> Tensor:
    """Rows of norm 1; a row of zeros stays one."""
    return torch.nn.functional.normalize(x.float(), dim=1)


def image_tensor(x: NDArray[np.float32]) -> Tensor:
    """(b, H, W) or (b, H, W, C) images -> (b, C, H, W)."""
    return channels_first(torch.from_numpy(np.ascontiguousarray(x)))


def channels_first(x: Tensor) -> Tensor:
    """(b, H, W) or (b, H, W, C) -> (b, C, H, W)."""
    return x[:, None] if x.ndim == 3 else x.permute(0, 3, 1, 2).contiguous()


def stretched(images: Tensor, side: int) -> Tensor:
    """(b, C, H, W) -> (b, C, side, side) in [0, 1], bicubic with anti-aliasing; images of that size as they are."""
    if tuple(images.shape[2:]) == (side, side):
        return images
    scaled = torch.nn.functional.interpolate(
        images, size=(side, side), mode="bicubic", antialias=True, align_corners=False
    )
    return scaled.clamp(0, 1)


def check_photograph_shape(input_shape: tuple[int, ...], name: str) -> None:
    shape = tuple(input_shape)
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3)):
        raise InvalidInput(f"input shape for {name}", shape, "images (H, W), (H, W, 1) or (H, W, 3)")
