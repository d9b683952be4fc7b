"""Image encoders: one image in, one vector out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, MissingExtra, check_choice, check_integer
from privmix.features.identity import unit_range
from privmix.features.models import quiet
from privmix.features.torch_encoder import (
    PretrainedEncoder,
    channels_first,
    check_photograph_shape,
    freeze,
    image_tensor,
    stretched,
    unit_rows,
)
from privmix.packages import torch

if TYPE_CHECKING:
    from torch import Tensor


_POOLINGS: Final = ("auto", "cls", "mean", "pooler")
# Their class token is trained. The pooler of a plain ViT is not in most checkpoints: it would be random numbers.
_CLS_TYPES: Final = frozenset({"vit", "deit", "beit", "dinov2", "dinov2_with_registers", "dinov3_vit"})
_POOLER_TYPES: Final = frozenset({"convnext", "convnextv2", "dinov3_convnext", "resnet", "regnet", "swin", "swinv2"})
_CLIP_TYPES: Final = frozenset({"clip", "clip_vision_model"})
_ALLOWED: Final = "a folder or hub name of a ViT, DINOv2, ConvNeXt or CLIP model with its weights in safetensors"


class VisionEncoder(PretrainedEncoder):
    """Embeddings of images by a model of the transformers library (extra ``vision``).

    Takes ViT, DINOv2, ConvNeXt and CLIP (its image half; OpenCLIP in the layout of transformers), and others whose
    output has the same form. Code that comes with a model is never run, and weights must be safetensors. Inputs are (b,
    H, W) or (b, H, W, 1 or 3): uint8, or floats in [0, 1]. An image is stretched to the model's size (bicubic with
    anti-aliasing, no cropping) and normalised by its preprocessor_config.json, or by the constants of CLIP or ImageNet.

    Formal guarantees:
        - Per record, to the bit, as for :class:`~privmix.features.torch_encoder.TorchEncoder`. Resizing and
          normalisation happen inside the calls of fixed shape too.

    Args:
        model: a local folder, or OWNER/NAME on the Hugging Face hub.
        pooling: ``"cls"``, ``"mean"``, ``"pooler"`` or ``"auto"``. Auto takes CLIP's projected ``image_embeds``, the
            last class token of ViT, DeiT, BEiT and DINO, the pooled output of ConvNeXt, ResNet and Swin, else the mean.
        normalize: divide each embedding by its norm.
        image_size: side of the square that the model sees; by default that of its configuration.
        The others: see :class:`~privmix.features.torch_encoder.PretrainedEncoder` and its base.
    """

    name: ClassVar[str] = "vision"
    extra: ClassVar[str] = "vision"
    step: ClassVar[int] = 64

    def __init__(
        self,
        model: str,
        *,
        pooling: str = "auto",
        normalize: bool = False,
        image_size: int | None = None,
        revision: str | None = None,
        precision: str = "float32",
        path: str | Path | None = None,
        device: str = "auto",
        batch_size: int | None = None,
    ) -> None:
        super().__init__(model, revision=revision, path=path, precision=precision, device=device, batch_size=batch_size)
        self._pooling, self._normalize = check_choice("pooling", pooling, _POOLINGS), bool(normalize)
        self._image_size = None if image_size is None else check_integer("image_size", image_size, low=8, high=4096)

    def options(self) -> dict[str, Any]:
        return {
            "model": self._public_name,
            "revision": self._located.revision,
            "pooling": self._pooling,
            "normalize": self._normalize,
            "image_size": self._image_size,
            "precision": self._precision,
        }

    def output_dim(self, input_shape: tuple[int, ...]) -> int:
        check_photograph_shape(input_shape, self.name)
        return self._dim

    def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
        check_photograph_shape(x.shape[1:], self.name)
        if len(x) == 0:
            return np.empty((0, self._dim), np.float32)
        return self._records(image_tensor(unit_range(x)), self._forward)

    def differentiable(self, input_shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        """(b, H, W) or (b, H, W, 1 or 3) -> (b, d), with gradients; in float32, one call for all."""
        check_photograph_shape(input_shape, self.name)
        return lambda x: self._forward(channels_first(x).to(self.device)).float().to(x.device)

    @cached_property
    def _dim(self) -> int:
        side = self._preprocessing.side
        black = torch.zeros(1, 3, side, side)
        try:
            first, second = (self._call(self._forward, black.to(self.device)) for _ in range(2))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            raise InvalidInput("model", self._public_name, f"{_ALLOWED}, for images of {side} pixels") from None
        # Dropout or random weights would give other features in each run.
        if not torch.equal(first, second):
            raise InvalidInput("model", self._public_name, "a model that gives the same output for the same image")
        return int(first.shape[1])

    def _forward(self, images: Tensor) -> Tensor:
        seen = self._preprocessing
        mean, std = (torch.tensor(values, device=images.device).view(1, 3, 1, 1) for values in (seen.mean, seen.std))
        colours = stretched(images.expand(-1, 3, -1, -1), seen.side)
        output = self._pool(self._model(pixel_values=(colours - mean) / std))
        return unit_rows(output) if self._normalize else output

    def _pool(self, output: Any) -> Tensor:
        type_ = self._config.model_type
        pooling = self._pooling
        if pooling == "auto":
            if type_ in _CLIP_TYPES:
                embeds: Tensor = output.image_embeds
                return embeds
            pooling = "cls" if type_ in _CLS_TYPES else "pooler" if type_ in _POOLER_TYPES else "mean"
        if pooling == "pooler":
            pooled: Tensor = output.pooler_output
            return pooled.flatten(1)
        hidden: Tensor = output.last_hidden_state
        if hidden.ndim == 4:
            return hidden.mean((2, 3))
        return hidden[:, 0] if pooling == "cls" else hidden.mean(1)

    @cached_property
    def _preprocessing(self) -> Preprocessing:
        sizes = [getattr(self._config, "image_size", None)]
        found = Preprocessing.of(self._located.folder, model_type=self._config.model_type, sizes=sizes)
        return found if self._image_size is None else replace(found, side=self._image_size)

    @cached_property
    def _config(self) -> Any:
        return self._loaded[1]

    @cached_property
    def _model(self) -> Any:
        return self._loaded[0]

    @property
    def _weights(self) -> Mapping[str, Tensor]:
        # Weights that the checkpoint lacks are drawn at each load, and not used.
        return {key: value for key, value in self._model.state_dict().items() if key not in self._loaded[2]}

    @cached_property
    def _loaded(self) -> tuple[Any, Any, frozenset[str]]:
        """Model, configuration, and names of weights that the checkpoint lacks."""
        try:
            from transformers import AutoConfig, AutoModel, CLIPVisionModelWithProjection
        except ImportError:
            raise MissingExtra("transformers", self.extra) from None
        folder, device = self._located.folder, self.device
        try:
            # Weights made in inference mode would let no gradient through, and the first call may come from there.
            with quiet(), torch.inference_mode(False):
                config = AutoConfig.from_pretrained(
                    self._located.folder, local_files_only=True, trust_remote_code=False
                )
                if config.model_type == "clip":
                    projection = config.projection_dim
                    # The image half alone: the text half has no use here and takes as much memory.
                    config = config.vision_config
                    config.projection_dim = projection
                kind: Any = CLIPVisionModelWithProjection if config.model_type in _CLIP_TYPES else AutoModel
                model, report = kind.from_pretrained(
                    folder,
                    config=config,
                    output_loading_info=True,
                    use_safetensors=True,
                    local_files_only=True,
                    dtype=torch.float32,
                )
        except Exception:
            raise InvalidInput("model", self._public_name, _ALLOWED) from None
        missing = frozenset(report["missing_keys"])
        # A pooler that is not used may be missing; any other random weight would make the features random.
        used = {key for key in missing if self._pooling == "pooler" or not key.startswith("pooler.")}
        if used:
            raise InvalidInput("model", self._public_name, f"a model with all its weights; {len(used)} are missing")
        return freeze(model, device), config, missing


FILE: Final = "preprocessor_config.json"
_IMAGENET: Final = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CLIP: Final = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_DEFAULT_SIDE: Final = 224


@dataclass(frozen=True)
class Preprocessing:
    """Public constants of a model: the side of its square in pixels, mean and deviation of each colour."""

    side: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, folder: Path, *, model_type: str, sizes: Iterable[Any] = ()) -> Self:
        """Read the folder's ``preprocessor_config.json``; constants of CLIP or ImageNet where it is absent."""
        # `sizes`: the model's side, in any of the forms that configurations use.
        found = _read(folder / FILE)
        # Models crop to crop_size where they have one, after a resize to something larger.
        stated = [found.get("crop_size")] if found.get("do_center_crop", True) else []
        sides = map(_side_of, [*stated, found.get("size"), *sizes])
        side = next((side for side in sides if side is not None), _DEFAULT_SIDE)
        if found.get("do_normalize") is False:
            return cls(side, (0.0,) * 3, (1.0,) * 3)
        fallback = _CLIP if "clip" in model_type else _IMAGENET
        mean, std = (found.get(key, given) for key, given in zip(("image_mean", "image_std"), fallback, strict=True))
        try:
            constants = tuple(map(float, mean)), tuple(map(float, std))
            if [len(values) for values in constants] != [3, 3] or min(constants[1]) <= 0:
                raise ValueError("not three")
        except (TypeError, ValueError):
            raise InvalidInput("image_mean and image_std of the model", (mean, std), "three numbers each") from None
        return cls(side, *constants)


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(f"{FILE} of the model", "damaged", "a JSON object")
    return found


def _side_of(size: Any) -> int | None:
    """Return the side of 224, [224, 224], {"height": 224} or {"shortest_edge": 224}."""
    if isinstance(size, Mapping):
        size = next((size[key] for key in ("height", "shortest_edge") if key in size), None)
    if isinstance(size, list | tuple) and size:
        size = size[0]
    return size if isinstance(size, int) and size > 0 else None
