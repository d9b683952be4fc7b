"""The location of a public model, the digests that identify it, and who may name one."""
# A path comes from the user of this machine, never from a spec.

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.errors import InvalidInput, MissingExtra, StorageError
from privmix.packages import torch

if TYPE_CHECKING:
    from torch import Tensor


# Formats of other run times, and code, are not fetched.
_WANTED: Final = ["*.json", "*.txt", "*.model", "*.safetensors"]
_UNWANTED: Final = ["onnx/*", "openvino/*", "*.onnx", "*.msgpack", "*.h5"]
# The small files that decide what a model computes, where they exist.
_DECISIVE: Final = (
    "config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "merges.txt",
)


@dataclass(frozen=True)
class Located:
    """A model's folder on this machine (never in a spec), and the hub's commit or None."""

    folder: Path
    revision: str | None = None


def locate(model: str, revision: str | None, path: str | Path | None, extra: str) -> Located:
    """Find the files of ``model``: at ``path``, else in the local folder ``model``, else on the hub."""
    if path is not None:
        if not Path(path).is_dir():
            raise InvalidInput("features_model", str(path), f"the folder that holds a copy of {model}")
        return Located(Path(path), revision)
    local = Path(model).expanduser()
    if local.is_dir():
        return Located(local)
    # A bare name is a folder that is missing: the hub need not hear what folders are called here.
    if model.count("/") != 1 or model.startswith(("/", ".", "~")) or "\\" in model:
        raise InvalidInput("model", model, "a folder that exists, or OWNER/NAME of a model on the Hugging Face hub")
    return _from_hub(model, revision, extra)


def cached(model: str, revision: str, extra: str) -> Located:
    """Return the files of a hub model at one commit, from the local cache alone: no address is opened."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtra("huggingface_hub", extra) from None
    try:
        folder = snapshot_download(model, revision=revision, local_files_only=True)
    except Exception:
        raise StorageError(
            f"model {model} at {revision}: not in the local cache. A received folder never downloads a model: "
            f"download it, or name its folder with `features_model`"
        ) from None
    return Located(Path(folder), revision)


def public_name(model: str, path: str | Path | None = None) -> str:
    """Return the name of a model in a spec: a folder's own name without its path, or the hub's name as it is."""
    local = Path(model).expanduser()
    if local.is_absolute() or (path is None and local.is_dir()):
        return local.resolve().name
    return model


def _from_hub(model: str, revision: str | None, extra: str) -> Located:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
        from huggingface_hub.errors import RevisionNotFoundError as RevisionError
    except ImportError:
        raise MissingExtra("huggingface_hub", extra) from None
    wanted = model if revision is None else f"{model} at {revision}"
    offline = f"model {wanted}: not in the local cache, and the Hugging Face hub cannot be reached. Give a local folder"
    try:
        folder = snapshot_download(model, revision=revision, allow_patterns=_WANTED, ignore_patterns=_UNWANTED)
    except LocalEntryNotFoundError:
        raise StorageError(offline) from None
    except (RepositoryNotFoundError, RevisionError, HFValidationError):
        allowed = "a folder that exists, or a model and revision that the Hugging Face hub has"
        raise InvalidInput("model", wanted, allowed) from None
    except Exception:
        raise StorageError(offline) from None
    # The cache names a snapshot's folder for the commit.
    return Located(Path(folder), Path(folder).name)


@contextmanager
def quiet() -> Iterator[None]:
    """Load without the libraries' reports and progress bars, which are not for the user of this package."""
    from transformers.utils import logging as library_logging

    logging: Any = library_logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors: names, types, shapes and bytes, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def files_digest(folder: Path) -> str:
    """SHA-256 of the small files that decide what a model computes: configuration, vocabulary, preprocessing."""
    digest = hashlib.sha256()
    modules = sorted(f"{module['path']}/config.json" for module in read_modules(folder) if module.get("path"))
    for name in [*_DECISIVE, *modules]:
        file = folder / name
        if file.is_file():
            digest.update(json.dumps([name, hashlib.sha256(file.read_bytes()).hexdigest()]).encode())
    return digest.hexdigest()


def read_modules(folder: Path) -> list[dict[str, Any]]:
    """Entries of a sentence encoder's modules.json; none where there is no such file, or where it is damaged."""
    file = folder / "modules.json"
    try:
        modules = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    except ValueError:
        modules = []
    return [module for module in modules if isinstance(module, dict)]


# No separator, no start with a dot or tilde, no control character: nothing that could be taken for a path.
_BARE: Final = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.+ -]{0,199}")
_PART: Final = r"[0-9A-Za-z][0-9A-Za-z_-]*(?:\.[0-9A-Za-z_-]+)*"
_HUB: Final = re.compile(rf"{_PART}/{_PART}")
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")
_LONGEST: Final = 200
_TRUST: Final = ":trust"


@dataclass(frozen=True)
class OwnModel:
    """A model file or folder that the user of this machine named; ``trusted``: it may run, where it is a program."""

    path: Path
    trusted: bool = False

    @classmethod
    def of(cls, given: OwnModel | str | Path) -> OwnModel:
        """Return a path, with ``:trust`` behind it where the file may run."""
        if isinstance(given, OwnModel):
            return given
        text = str(given)
        return cls(Path(text.removesuffix(_TRUST)), text.endswith(_TRUST))


def bare_name(value: Any) -> str:
    """Return a plain file or folder name, which a spec may show; refuse anything with a path."""
    if not isinstance(value, str) or not _BARE.fullmatch(value) or ".." in value:
        raise InvalidInput("extractor's model", value, "a name without a path")
    return value


def is_hub_name(value: Any) -> bool:
    """Whether ``value`` is OWNER/NAME, as the Hugging Face hub names models."""
    return isinstance(value, str) and len(value) <= _LONGEST and _HUB.fullmatch(value) is not None


def is_commit(value: Any) -> bool:
    """Whether ``value`` is a commit of the hub, and no branch that changes."""
    return isinstance(value, str) and _COMMIT.fullmatch(value) is not None
