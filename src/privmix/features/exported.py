"""Exported programs (``torch.export``) without the pickles that may come with them."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any, Final

import torch

from privmix.errors import InvalidInput
from privmix.untrusted import MEBIBYTE, parse_json

# What torch.export.save writes for one program. Weights and constants are raw numbers; code compiled ahead of time,
# objects and the older format, which all go through pickle or are machine code, have other names.
_PLAIN: Final = re.compile(
    r"\.format_version|\.data/(version|serialization_id)|version|byteorder|archive_format|archive_version"
    r"|models/model\.json|data/sample_inputs/model\.pt|data/weights/(model_weights_config\.json|weight_\d+)"
    r"|data/constants/(model_constants_config\.json|tensor_\d+)"
)
_INPUTS: Final = "data/sample_inputs/model.pt"
_CONFIGS: Final = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_MOST: Final = 64 * MEBIBYTE


def load_program(file: Path) -> Any:
    """``torch.export.load`` for files in which nothing is unpickled but tensors.

    A program still runs when it is called: it is for files that one trusts.

    Raises:
        InvalidInput: the file holds pickled objects, compiled code, or is no exported program.
    """
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
