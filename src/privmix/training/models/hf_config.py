"""Configurations of the transformers library as plain numbers: nothing in them names code, a path or an address."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any, Final

from privmix.errors import InvalidInput

# Architectures that the library builds from numbers alone. Others take a network or its weights from another library
# by name (timm_wrapper), or are no plain image models.
MODEL_TYPES: Final = frozenset(
    {
        "beit", "bit", "clip", "convnext", "convnextv2", "cvt", "data2vec-vision", "deit", "dinov2",
        "dinov2_with_registers", "donut-swin", "efficientnet", "focalnet", "hiera", "ijepa", "levit", "metaclip_2",
        "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "poolformer", "pvt", "pvt_v2", "regnet", "resnet",
        "segformer", "siglip", "siglip2", "swiftformer", "swin", "swinv2", "vit", "vit_msn",
    }
)  # fmt: skip
_NESTED: Final = ("vision_config", "text_config")
# Their halves; a configuration may give the type of each.
_HALVES: Final = re.compile(r"(clip|metaclip_2|siglip|siglip2)_(vision|text)_model")
# Names of activations and layers. No slash, dot or colon: no path, address or module.
_WORD: Final = re.compile(r"[a-z0-9_]{1,32}")
_LONGEST: Final = 256
_ALLOWED: Final = "an image model that transformers builds from numbers: " + ", ".join(sorted(MODEL_TYPES))


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON fields of a configuration that decide the architecture; a stranger may have written it."""
    # Only fields of the library's class for this model type are kept. Names, paths (``_name_or_path``), classes and
    # quantised weights are dropped, and code: ``auto_map``, ``attn_implementation``, ``trust_remote_code``. Dropout is
    # 0.
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise InvalidInput("model_type of the network", kind, _ALLOWED)
    return {"model_type": kind, **_fields(config, kind)}


def _fields(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    own = _own_fields(kind)
    kept: dict[str, Any] = {}
    for key, value in config.items():
        if key not in own:
            continue
        if key in _NESTED and isinstance(value, Mapping):
            half = value.get("model_type")
            if not isinstance(half, str) or not _HALVES.fullmatch(half):
                raise InvalidInput(f"model_type of the network's {key}", half, "one half of a model of two")
            kept[key] = {"model_type": half, **_fields(value, half)}
        elif not _is_plain(value):
            raise InvalidInput(f"{key} of the network", value, "a number, a word, or a short list of them")
        else:
            drops = ("dropout" in key or key.startswith("drop_path")) and isinstance(value, int | float)
            kept[key] = 0.0 if drops else value
    return kept


def _own_fields(kind: str) -> frozenset[str]:
    """Fields of the library's configuration of this type, without those that all configurations have."""
    from transformers import CONFIG_MAPPING, PretrainedConfig

    found: Any = CONFIG_MAPPING[kind]
    if dataclasses.is_dataclass(found):
        common: Any = PretrainedConfig
        names = {field.name for field in dataclasses.fields(found)} - {
            field.name for field in dataclasses.fields(common)
        }
    else:
        names = set(inspect.signature(found.__init__).parameters)
    return frozenset(name for name in names if not name.startswith("_") and name not in _NEVER)


# In all classes that have them.
_NEVER: Final = frozenset(
    {
        "self", "kwargs", "auto_map", "attn_implementation", "experts_implementation", "trust_remote_code", "backbone",
        "backbone_config", "backbone_kwargs", "use_pretrained_backbone", "use_timm_backbone", "quantization_config",
        "name_or_path", "out_features", "out_indices", "id2label", "label2id", "architectures", "dtype", "torch_dtype",
    }
)  # fmt: skip


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, list | tuple):
        return depth < 3 and len(value) <= _LONGEST and all(_is_plain(part, depth + 1) for part in value)
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int | float)
