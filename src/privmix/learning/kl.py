"""The papers' reference learner: a softmax classifier trained with the generalised KL divergence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_choice, check_integer, check_number
from privmix.learning.base import LEARNERS, ReleaseFacts, ReleaseLearner, check_arrays
from privmix.learning.class_statistics import ClassPrior
from privmix.learning.rows import slices
from privmix.packages import import_part, torch
from privmix.progress import Progress
from privmix.publication.dataset import HasDataset, ReleasedDataset

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

AUGMENTATIONS: Final = ("flip", "crop")
_PADDING: Final = 4


def augmentations(text: str | None) -> frozenset[str]:
    """Parse "flip", "crop" or both with a comma between; None gives none."""
    named = text.split(",") if isinstance(text, str) else []
    if not (text is None or named) or not set(named) <= set(AUGMENTATIONS) or len(set(named)) != len(named):
        raise InvalidInput("augment", text, f"{', '.join(AUGMENTATIONS)}, or both, separated by a comma")
    return frozenset(named)


@dataclass(frozen=True)
class ImageRows:
    """Random horizontal flips and crops of rows that are images (Li et al. 2022, appendix E.3), drawn for each row."""

    # A flip has probability 1/2. A crop is a window of the image's size, at any place, of the image with 4 mirrored
    # pixels on all sides: zeros there would have no noise. ``centre`` (d,) was subtracted from every record.

    which: frozenset[str]
    shape: tuple[int, ...]
    dim: int
    centre: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.shape) not in (2, 3) or math.prod(self.shape) != self.dim:
            allowed = f"no augmentation: rows of {self.dim} numbers are not images of shape {self.shape}"
            raise InvalidInput("augment", ",".join(sorted(self.which)), allowed)
        if "crop" in self.which and min(self.shape[:2]) <= _PADDING:
            raise InvalidInput("augment", "crop", f"flip only: images of {self.shape[:2]} pixels are too small to crop")

    def __call__(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """(b, d) rows -> (b, d), with new draws at every call."""
        height, width, channels = (*self.shape, 1)[:3]
        whole = rows if self.centre is None else rows + self.centre
        images = whole.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        if "flip" in self.which:
            turned = torch.rand(len(images), generator=generator) < 0.5
            images = torch.where(turned[:, None, None, None], images.flip(-1), images)
        if "crop" in self.which:
            count = len(images)
            wide = torch.nn.functional.pad(images, (_PADDING,) * 4, mode="reflect")
            top, left = torch.randint(2 * _PADDING + 1, (2, count), generator=generator)
            y, x = top[:, None] + torch.arange(height), left[:, None] + torch.arange(width)
            image, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[None, :, None, None]
            images = wide[image, channel, y[:, None, :, None], x[:, None, None, :]]
        found = images.permute(0, 2, 3, 1).reshape(len(rows), self.dim)
        return found if self.centre is None else found - self.centre


# Li et al. 2022, appendix E.3: of 200 epochs, the learning rate is divided by 10 after these.
PAPER_EPOCHS: Final = 200
PAPER_MILESTONES: Final = (80, 120, 160)
_DECAY: Final = 0.1
_NETWORKS: Final = "privmix.learning.networks"
_BATCH: Final = 4096


def generalised_kl(p: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """(b,) generalised KL divergence D(p || softmax(logits)) (Li et al. 2022, equation 6); p >= 0, any sum."""
    log_q = torch.log_softmax(logits, dim=1)
    divergence: torch.Tensor = (torch.special.xlogy(p, p) - p * log_q - p).sum(dim=1) + 1.0
    return divergence


@LEARNERS.register
class GeneralizedKLClassifier(ReleaseLearner):
    """Linear or convolutional softmax classifier on a release, trained as in Li et al. 2022 (appendices D and E).

    Negative label entries are cut to 0. Adam minimises the generalised KL divergence between noisy label row and
    softmax output; its learning rate falls tenfold at 40%, 60% and 80% of the epochs. A label offset in the release
    (labels centred by 1/K) is added back before the cut.

    Args:
        model: ``"linear"``, or ``"cnn"``, the network of the paper's Table 5. The latter is for releases of images, (H,
            W) or (H, W, channels) with H and W divisible by 4, mixed as flat pixels.
        epochs: passes over the released rows.
        batch_size: rows a step.
        learning_rate: of Adam, before the first decay.
        seed: of initial weights, order of rows and augmentations; torch's global generator is not used.
        augment: ``"flip"``, ``"crop"`` or ``"flip,crop"`` of rows that are pixels, drawn again in every epoch; None:
            none.
        standardise: scale features, of rows and records, to mean 0 and standard deviation 1 over the released rows.

    Attributes:
        network_: the trained ``torch.nn.Module``.
        loss_curve_: mean divergence over each epoch's batches.
        accuracy_curve_: accuracy after each epoch on ``validation``; empty without.

    Example:
        >>> from privmix.publication.dataset import RecordTransform
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(2, size=64)
        >>> release = ReleasedDataset(
        ...     x=np.eye(2, dtype=np.float32)[labels], y=np.eye(2, dtype=np.float32)[labels], design="poisson",
        ...     mixup_degree=1, noise_std_x=0.0, noise_std_y=0.0, label_offset=0.0, classes=("cat", "dog"),
        ...     transform=RecordTransform(1.0), extractor={"name": "identity"}, input_shape=(2,), release_id="example")
        >>> model = GeneralizedKLClassifier(epochs=20, batch_size=8, learning_rate=0.1).fit(release)
        >>> model.predict(np.eye(2)).tolist()
        [0, 1]
    """

    name: ClassVar[str] = "generalized-kl"
    in_epochs: ClassVar[bool] = True
    network_: Module
    loss_curve_: list[float]
    accuracy_curve_: list[float]
    _watched: tuple[NDArray[Any], NDArray[np.int64]] | None = None

    def __init__(
        self,
        model: str = "linear",
        epochs: int = PAPER_EPOCHS,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        seed: int = 0,
        augment: str | None = None,
        standardise: bool = False,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed
        self.augment = augment
        self.standardise = standardise

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Its epochs and learning rate are for thousands of noisy rows, not for a few hundred clean records.
        tags.classifier_tags.poor_score = True
        return tags

    def fit(
        self,
        release: ReleasedDataset | HasDataset | Any,
        y: Any = None,
        *,
        progress: Progress | None = None,
        prior: ClassPrior | None = None,
        validation: tuple[NDArray[Any], NDArray[np.int64]] | None = None,
    ) -> Self:
        """Fit to a release; arguments and errors as :meth:`ReleaseLearner.fit`, and:

        Args:
            release: the released rows and their public facts; with ``y``, (n, d) records.
            y: their labels; None with a release.
            progress: called after each epoch with ("epochs", epochs done, epochs in all).
            prior: refused: this learner takes none.
            validation: (n, d) raw extractor outputs and (n,) class indices for ``accuracy_curve_``. The model does not
                depend on them. If they are private, no guarantee covers the curve, nor an epoch chosen by it.
        """
        self._watched = validation
        try:
            return super().fit(release, y, progress=progress, prior=prior)
        finally:
            self._watched = None

    @property
    def best_epoch(self) -> tuple[int, float] | None:
        """The first epoch, counted from 1, whose accuracy on watched records is the best, and that accuracy."""
        curve = getattr(self, "accuracy_curve_", [])
        return (int(np.argmax(curve)) + 1, max(curve)) if curve else None

    @property
    def summary(self) -> str:
        return f"{self.epochs} epochs"

    def _check_params(self) -> None:
        check_choice("model", self.model, ["linear", "cnn"])
        check_integer("epochs", self.epochs, low=1)
        check_integer("batch_size", self.batch_size, low=1)
        check_number("learning_rate", self.learning_rate, low=0, low_open=True)
        check_integer("seed", self.seed, low=0, high=2**63 - 1)
        augmentations(self.augment)
        if not isinstance(self.standardise, bool):
            raise InvalidInput("standardise", self.standardise, "true or false")

    def _fit(self, release: ReleasedDataset, progress: Progress) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        network = self._built(ReleaseFacts.of(release))
        import_part(_NETWORKS).initialise(network, generator)
        if self.standardise:
            assert isinstance(network, torch.nn.Sequential)
            x = release.x
            found = {"shift": x.mean(axis=0, dtype=np.float64), "scale": x.std(axis=0, dtype=np.float64) + 1e-6}
            network[0].load_state_dict({k: torch.from_numpy(v.astype(np.float32)) for k, v in found.items()})
        which, changed, centre = augmentations(self.augment), None, release.transform.centre
        if which:
            shift = None if centre is None else torch.from_numpy(np.asarray(centre, dtype=np.float32))
            changed = ImageRows(which, tuple(release.input_shape), release.dim, shift)
        watched = None if self._watched is None else _records(release, *self._watched)
        # An expected row holds m labels over m, so one whole offset is what centring took from it.
        targets = torch.from_numpy(np.maximum(release.y + release.label_offset, 0, dtype=np.float32))

        optimiser = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        milestones = [round(at / PAPER_EPOCHS * self.epochs) for at in PAPER_MILESTONES]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, gamma=_DECAY)
        self.loss_curve_, self.accuracy_curve_ = [], []
        network.train()
        # A linear step is too short to share: with a busy neighbour two threads took 6 times as long as one.
        with _threads(1 if self.model == "linear" else torch.get_num_threads()):
            for epoch in range(self.epochs):
                self.loss_curve_.append(self._epoch(network, optimiser, release.x, targets, generator, changed))
                if watched is not None:
                    self.accuracy_curve_.append(_accuracy(network, *watched))
                schedule.step()
                progress("epochs", epoch + 1, self.epochs)
        self.network_ = network.eval()

    def _epoch(
        self,
        network: Module,
        optimiser: torch.optim.Optimizer,
        x: NDArray[np.float32],
        targets: torch.Tensor,
        generator: torch.Generator,
        changed: ImageRows | None,
    ) -> float:
        batches = torch.split(torch.randperm(len(x), generator=generator), self.batch_size)
        total = 0.0
        for batch in batches:
            rows = torch.from_numpy(np.asarray(x[batch.numpy()], dtype=np.float32))
            if changed is not None:
                rows = changed(rows, generator)
            loss = generalised_kl(targets[batch], network(rows)).mean()
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimiser.step()
            total += loss.item()
        return total / len(batches)

    def _scores(self, records: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return np.asarray(self.network_(torch.from_numpy(records)).numpy())

    def _arrays(self) -> dict[str, NDArray[np.float32]]:
        return {name: tensor.numpy() for name, tensor in self.network_.state_dict().items()}

    def _restore(self, arrays: Mapping[str, NDArray[np.float32]], facts: ReleaseFacts) -> None:
        # Facts may come from a stranger: the network takes memory only when its arrays are there.
        try:
            with torch.device("meta"):
                shapes = {name: tuple(tensor.shape) for name, tensor in self._built(facts).state_dict().items()}
        except RuntimeError:
            raise InvalidInput("dim, classes", (facts.dim, len(facts.classes)), "sizes of a network") from None
        check_arrays(arrays, shapes)
        network = self._built(facts)
        network.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
        self.network_ = network.eval()

    def _built(self, facts: ReleaseFacts) -> Module:
        networks = import_part(_NETWORKS)
        network: Module = networks.built(self.model, facts)
        return torch.nn.Sequential(networks.Standard(facts.dim), network) if self.standardise else network


def _records(
    release: ReleasedDataset, features: NDArray[Any], labels: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return records to watch, as the network takes them; raise where features or labels do not fit."""
    features, labels = np.asarray(features), np.asarray(labels)
    if features.ndim != 2 or features.shape[1] != release.dim or len(features) != len(labels) or not len(labels):
        raise InvalidInput("validation", (features.shape, labels.shape), f"(n, {release.dim}) features and n labels")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= release.num_classes:
        raise InvalidInput("validation", "other labels", f"class indices below {release.num_classes}")
    parts = [release.transform(features[part]).astype(np.float32) for part in slices(len(features), _BATCH)]
    return torch.from_numpy(np.concatenate(parts)), torch.from_numpy(labels.astype(np.int64))


def _accuracy(network: Module, records: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.inference_mode():
        found = torch.cat([network(part).argmax(dim=1) for part in torch.split(records, _BATCH)])
    return float((found == labels).double().mean())


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
