"""Load any folder of privmix: a release, or a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privmix.certificate.certificate import MODEL
from privmix.jobs.kinds import FITTED, kind_of
from privmix.jobs.models import Model, model_in
from privmix.jobs.release_folder import Release
from privmix.packages import torch_as_extra


@torch_as_extra()
def load(folder: str | Path, *, features_model: str | Path | None = None, module: Any = None) -> Release | Model:
    """Read a release, a model fitted on one, or a trained model, by what the folder is.

    The folder is data: nothing of it is run, and no path or address that it names is opened.

    Args:
        folder: what ``privmix release``, ``privmix fit`` or ``privmix train`` wrote.
        features_model: for models; see :class:`Model`.
        module: of a model that is a network of your own: the ``torch.nn.Module`` that was trained, or
            ``torch:FILE.py:NAME``. Its folder has weights alone: without the module the model predicts nothing.

    Raises:
        InvalidInput: a file is damaged, edited or not one that belongs there.
        StorageError: a file is missing or can't be read.

    Example:
        >>> load("no-such-folder")
        Traceback (most recent call last):
        ...
        privmix.errors.StorageError: certificate: cannot read no-such-folder/certificate.json: No such file or directory
    """
    if kind_of(Path(folder)) in (MODEL, FITTED):
        return model_in(folder, features_model, module)
    found = Release(folder)
    # Damaged files raise now, and not when they are used.
    _ = found.dataset
    return found
