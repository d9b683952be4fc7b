"""The input that a pretrained image model takes: its side, and the mean and standard deviation of its training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from privmix.errors import InvalidInput

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
