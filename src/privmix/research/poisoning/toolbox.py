"""The adversarial robustness toolbox (ART), imported only inside :func:`toolbox`."""

from __future__ import annotations

import contextlib
import copy
import io
import logging.config
import random
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from privmix.errors import MissingExtra
from privmix.training.models.base import seeded

if TYPE_CHECKING:
    from privmix.research.poisoning.victims.ordinary import TrainedNetwork


def require_toolbox() -> None:
    """Raise MissingExtra unless ART is installed; it is not imported."""
    # Another package has a module of this name: what counts is the distribution.
    try:
        version("adversarial-robustness-toolbox")
    except PackageNotFoundError:
        raise MissingExtra("adversarial-robustness-toolbox", "poisoning") from None


@contextlib.contextmanager
def toolbox(seed: int) -> Iterator[None]:
    """ART with Python's, NumPy's and torch's global generators started from `seed`, and restored afterwards."""
    # ART draws from these, prints, and closes handlers of logging when it is imported: its output is hidden and the
    # handlers are kept.
    require_toolbox()
    before, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        _import_art()
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        with seeded(seed), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
        random.setstate(python)


def _import_art() -> None:
    """Import ART without its set-up of logging, which closes every handler there is: the caller's files, too."""
    if "art" in sys.modules:
        return
    configure = logging.config.dictConfig

    def but_its_own(config: Any) -> None:
        # Another thread may set up its logging meanwhile.
        if "art" not in config.get("loggers", {}):
            configure(config)

    logging.config.dictConfig = but_its_own
    try:
        import art  # noqa: F401
    finally:
        logging.config.dictConfig = configure


def art_classifier(trained: TrainedNetwork, shape: tuple[int, int, int], classes: int) -> Any:
    """ART's `PyTorchClassifier` of a copy of a network; its layers are `body` (the features) and `head`."""
    # A copy, since ART leaves hooks in what it looks at.
    require_toolbox()
    from art.estimators.classification import PyTorchClassifier
    from torch import nn

    network = copy.deepcopy(trained.network).eval()
    on_gpu = any(parameter.is_cuda for parameter in network.parameters())
    return PyTorchClassifier(
        network,
        loss=nn.CrossEntropyLoss(),
        input_shape=shape,
        nb_classes=classes,
        clip_values=(0.0, 1.0),
        device_type="gpu" if on_gpu else "cpu",
    )
