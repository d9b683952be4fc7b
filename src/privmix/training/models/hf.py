"""Pretrained image classifiers of the transformers library, with a new head for the given classes."""

import dataclasses
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from privmix.errors import InvalidInput, MissingExtra, check_integer
from privmix.features.models import locate, public_name, quiet
from privmix.features.vision import Preprocessing
from privmix.training.models.base import MODELS, Classifier, Wanted, without_memory

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
_BUILT: Final = "an image model that transformers builds from numbers: " + ", ".join(sorted(MODEL_TYPES))


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON fields of a configuration that decide the architecture; a stranger may have written it."""
    # Only fields of the library's class for this model type are kept. Names, paths (``_name_or_path``), classes and
    # quantised weights are dropped, and code: ``auto_map``, ``attn_implementation``, ``trust_remote_code``. Dropout is
    # 0.
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise InvalidInput("model_type of the network", kind, _BUILT)
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


_EXTRA: Final = "vision"
_LORA_EXTRA: Final = "lora"
_RANK: Final = 8
_HIGHEST_RANK: Final = 4096
_LARGEST_IMAGE: Final = 2**14
_COLUMNS: Final = 256
_ALLOWED: Final = "a folder or hub name of an image model of transformers with its weights in safetensors"


@MODELS.register
class PretrainedClassifier(Classifier):
    """An image model of the transformers library with a new last layer, from zero weights; :meth:`of_name` loads one.

    Images of one or three channels are stretched to the model's size (bicubic with anti-aliasing; no cropping). Grey
    ones get three equal channels; all are normalised by the model's public mean and standard deviation. Dropout rates
    are set to 0: masks would differ between a record's views, and a run could not be repeated. Parameters without
    effect on the logits are frozen. Code that comes with a model is never run. Batch normalisation stays, and
    :func:`~privmix.training.models.layers_check.check_model` refuses it.
    """

    # frozen: train the head alone, and low-rank changes where there are any. lora_rank: of the changes to each linear
    # layer but the head (Hu et al. 2022), by peft; 0: none.

    name: ClassVar[str] = "transformers"
    called: ClassVar[str] = (
        "hf:FOLDER_OR_NAME, hf-head:FOLDER_OR_NAME (its last layer alone is trained), or hf-lora:FOLDER_OR_NAME (its "
        "last layer, and low-rank changes of the others)"
    )
    takes_images: ClassVar[bool] = True

    @classmethod
    def of_name(cls, name: str, wanted: Wanted) -> Self | None:
        """Load the model in a folder, or the one on the Hugging Face hub by OWNER/NAME."""
        # The model has to be there with all its weights, and an image model; a cached one needs no network.
        prefix, _, where = name.partition(":")
        if prefix not in ("hf", "hf-head", "hf-lora") or not where:
            return None
        (channels, height, width), auto = wanted.images.shape, _library()
        folder, shown = locate(where, None, None, _EXTRA).folder, public_name(where)
        try:
            with quiet():
                found = auto.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
                config = plain_config(found.to_dict())
                model, report = auto.AutoModelForImageClassification.from_pretrained(
                    folder,
                    config=_built_config(config, wanted.classes),
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,
                    use_safetensors=True,
                    local_files_only=True,
                    trust_remote_code=False,
                    dtype=torch.float32,
                )
        except Exception:
            raise InvalidInput("model", shown, _ALLOWED) from None
        names = [*report["missing_keys"], *(entry[0] for entry in report["mismatched_keys"])]
        missing = [key for key in names if not key.startswith("classifier.")]
        if missing:
            raise InvalidInput("model", shown, f"a model with all its weights; {len(missing)} are missing")
        sizes = [config.get("image_size"), config.get("vision_config", {}).get("image_size")]
        seen = Preprocessing.of(folder, model_type=str(config.get("model_type")), sizes=sizes)
        return cls(
            config=config,
            channels_in=channels,
            height=height,
            width=width,
            classes=wanted.classes,
            side=seen.side,
            mean=seen.mean,
            std=seen.std,
            frozen=prefix != "hf",
            lora_rank=_RANK if prefix == "hf-lora" else 0,
            model=model,
        )

    def __init__(
        self,
        *,
        config: Mapping[str, Any],
        channels_in: int,
        height: int,
        width: int,
        classes: int,
        side: int,
        mean: Sequence[float],
        std: Sequence[float],
        frozen: bool = False,
        lora_rank: int = 0,
        model: nn.Module | None = None,
    ) -> None:
        super().__init__(classes)
        if channels_in not in (1, 3):
            raise InvalidInput("channels", channels_in, "1 or 3 for a pretrained image model")
        self.channels_in: Final = channels_in
        self.frozen: Final = bool(frozen)
        self.height: Final = check_integer("height", height, low=1, high=_LARGEST_IMAGE)
        self.width: Final = check_integer("width", width, low=1, high=_LARGEST_IMAGE)
        self.side: Final = check_integer("side", side, low=8, high=4096)
        self.mean: Final = tuple(map(float, mean))
        self.std: Final = tuple(map(float, std))
        _library()
        # A certificate of a stranger may be where it comes from.
        self._config: dict[str, Any] = json.loads(json.dumps(plain_config(config)))
        self.model: Final = _from_config(self._config, self.classes) if model is None else model
        self.register_buffer("_rows", _stretch(self.height, self.side), persistent=False)
        self.register_buffer("_columns", _stretch(self.width, self.side), persistent=False)
        self.register_buffer("_mean", torch.tensor(self.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("_std", torch.tensor(self.std).view(3, 1, 1), persistent=False)
        self.lora_rank: Final = check_integer("lora_rank", lora_rank, low=0, high=_HIGHEST_RANK)
        head = _head(self.model, self.classes)
        if self.lora_rank:
            _add_low_rank(self.model, head, self.lora_rank)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        self._freeze(head)

    def options(self) -> dict[str, Any]:
        """Arguments of the constructor; the configuration is in them, so that no folder is needed to rebuild."""
        plain = ("channels_in", "height", "width", "classes", "side", "frozen")
        numbers = {"mean": list(self.mean), "std": list(self.std)}
        # Without low rank, specs are those from before the option existed.
        low_rank = {"lora_rank": self.lora_rank} if self.lora_rank else {}
        return {"config": self._config, **{name: getattr(self, name) for name in plain}, **numbers, **low_rank}

    def values_a_record(self, dim: int) -> int:
        """Three colours of the square that the model sees, or the image itself where that is larger."""
        return max(dim, 3 * self.side**2)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns, mean, std = (self.get_buffer(name) for name in ("_rows", "_columns", "_mean", "_std"))
        # Two products instead of an interpolation: the same numbers, and vmap knows them.
        stretched = (rows @ x @ columns.mT).clamp(0, 1)
        colours = stretched.expand(*x.shape[:-3], 3, self.side, self.side)
        logits: Tensor = self.model(pixel_values=(colours - mean) / std).logits
        return logits

    def _freeze(self, head: nn.Linear) -> None:
        if self.frozen:
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad_(".lora_" in name)
            head.requires_grad_(True)
            return
        self.model.requires_grad_(True)
        named = [(name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad]
        # Batch normalisation must neither see the black image nor refuse it.
        self.model.eval()
        # Shapes alone decide which weights count: a large image would take much memory here.
        shapes = without_memory(self)
        try:
            with torch.device("meta"):
                black = torch.zeros(1, self.channels_in, self.height, self.width)
                logits = torch.func.functional_call(self, shapes, (black,))
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            raise InvalidInput("model", self._config.get("model_type"), _ALLOWED) from None
        used = torch.autograd.grad(logits.sum(), [shapes[name] for name, _ in named], allow_unused=True)
        for (_, parameter), gradient in zip(named, used, strict=True):
            parameter.requires_grad_(gradient is not None)
        self.train()


def _add_low_rank(model: nn.Module, head: nn.Linear, rank: int) -> None:
    """Add a low-rank change to every linear layer but the head; the first of its two factors starts at random."""
    try:
        import peft
    except ImportError:
        raise MissingExtra("peft", _LORA_EXTRA) from None
    targets = [name for name, layer in model.named_modules() if type(layer) is nn.Linear and layer is not head]
    if not targets:
        raise InvalidInput("model", type(model).__name__, "a model with linear layers, or the model hf-head")
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=targets)
    peft.inject_adapter_in_model(config, model)


def _library() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", _EXTRA) from None
    return transformers


def _built_config(config: Mapping[str, Any], classes: int) -> Any:
    return _library().AutoConfig.for_model(**{**config, "num_labels": classes})


def _from_config(config: Mapping[str, Any], classes: int) -> nn.Module:
    library = _library()
    try:
        with quiet():
            model: nn.Module = library.AutoModelForImageClassification.from_config(
                _built_config(config, classes), trust_remote_code=False
            )
    except Exception:
        raise InvalidInput("model", config.get("model_type"), "an image model that transformers knows") from None
    return model.float()


def _head(model: nn.Module, classes: int) -> nn.Linear:
    inner = getattr(model, "classifier", None)
    linear = [module for module in inner.modules() if isinstance(module, nn.Linear)] if inner is not None else []
    if not linear or linear[-1].out_features != classes:
        raise InvalidInput("model", type(model).__name__, "an image model that ends in a linear layer 'classifier'")
    return linear[-1]


def _stretch(length: int, side: int) -> Tensor:
    """(side, length): bicubic resizing with anti-aliasing of one axis, as a matrix."""
    parts = []
    for start in range(0, length, _COLUMNS):
        # A part of the identity at a time: whole, it would take the square of the length.
        identity = torch.zeros(1, 1, length, min(_COLUMNS, length - start))
        identity[0, 0, start : start + _COLUMNS].fill_diagonal_(1)
        size = (side, identity.shape[-1])
        parts.append(functional.interpolate(identity, size=size, mode="bicubic", antialias=True, align_corners=False))
    return torch.cat(parts, dim=3)[0, 0]
