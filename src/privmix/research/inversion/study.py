"""How much of single images an inversion of mixed rows brings back, with and without the noise of a plan.

The setting of DPFMix (Li et al. 2022, Figures 4 and 9), but the attacker chooses the weight of total variation, the
start and the brightness. Without noise the best fit shows which try is right. With noise the best fit fits the noise,
so the attacker practises on rows made of public images: half of the given images play that part.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from privmix.errors import InvalidInput, check_integer
from privmix.features.base import Extractor
from privmix.plans.plan import Plan
from privmix.progress import Progress
from privmix.research.inversion.picture import stored_images
from privmix.research.inversion.scene import InversionScene, RowMembers, transform_of
from privmix.research.inversion.search import InversionConfig, MixedFeatures, invert
from privmix.research.inversion.similarity import Similarity, best_correlation, best_matches, match_order
from privmix.research.known_rows import check_sums, rows_of_members
from privmix.rounding import rounded_up

STATEMENTS: Final = (
    "The attacker knows the extractor, the plan, the released mean and how many records a row holds; the last is more "
    "than a release states.",
    "Each original is matched with the recovered image of its row that is most like it. The baseline matches it in the "
    "same way with as many images of other people: an attack tells something only where it does better than that, and "
    "than the mean of public images.",
    "An attack that fails proves nothing: a better one may exist. The guarantee is the certificate's epsilon.",
)
# A try on rows of public images gets this fraction of the steps: one in four.
_TRIAL: Final = 4


@dataclass(frozen=True)
class Attempt:
    """An attacker's choices: beta, the start, and the brightness."""

    # `stretch` scales every recovered image to the public images' brightest pixel: normalising extractors do not
    # see it.
    tv_weight: float
    from_mean: bool = False
    stretch: bool = False


# The first is DPFMix's. Noise asks for more smoothing; without it, too much of it wipes out the row's information.
QUIET: Final = (Attempt(1e-4), Attempt(1e-4, from_mean=True))
NOISY: Final = (Attempt(1e-2), Attempt(1e-1, from_mean=True), Attempt(1.0, from_mean=True))


@dataclass(frozen=True)
class InversionCase:
    """One setting to attack: a plan, and the epsilon that its noise is for, or None to leave the noise out."""

    plan: Plan
    epsilon: float | None


@dataclass(frozen=True)
class CaseResult:
    """The attack's result in one setting: likeness of recovered images, of other people's, and of the mean image."""

    # `noise_std` is per released feature; `attempt` is the attacker's choice, without noise the one that explains
    # most rows.
    m: int
    epsilon: float | None
    noise_std: float
    recovered: Similarity
    others: Similarity
    mean_image: Similarity
    attempt: Attempt
    originals: int

    def to_dict(self) -> dict[str, Any]:
        """JSON values: the figures of the recovered images next to those of the baselines."""
        return {
            "m": self.m,
            "epsilon": self.epsilon,
            **asdict(self.recovered),
            "noise_std": self.noise_std,
            "baseline": asdict(self.others),
            "mean_image": asdict(self.mean_image),
            "attempt": asdict(self.attempt),
            "originals": self.originals,
        }


@dataclass(frozen=True)
class InversionStudy:
    """Figures and pictures of all settings; for each degree a row of originals, then a row for each budget."""

    cases: tuple[CaseResult, ...]
    pictures: NDArray[np.uint8]
    row_labels: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        first = self.cases[0]
        return {
            "cases": [case.to_dict() for case in self.cases],
            "baseline": {"mse": first.others.mse, "ssim": first.others.ssim, "m": first.m},
            "images": stored_images(
                self.pictures, self.row_labels, [f"image {column + 1}" for column in range(self.pictures.shape[1])]
            ),
        }


def study_inversion(
    cases: Sequence[InversionCase],
    images: NDArray[Any],
    labels: NDArray[np.integer[Any]],
    extractor: Extractor,
    generator: np.random.Generator,
    *,
    originals: int = 8,
    centre: NDArray[np.float32] | None = None,
    config: InversionConfig | None = None,
    attempts: Sequence[Attempt] | None = None,
    progress: Progress | None = None,
) -> InversionStudy:
    """Attack rows of known members in every setting, and compare the recovered images with the originals."""
    # Half of the images are attacked, half are the attacker's. Settings of one degree attack rows of the same
    # members. `centre` None makes the released mean from the images as the plan would.
    if not cases:
        raise InvalidInput("cases", 0, "at least one setting")
    check_integer("originals", originals, low=1)
    scene = InversionScene.of(images, labels, extractor, generator)
    results: list[CaseResult] = []
    pictures: list[NDArray[np.float32]] = []
    row_labels: list[str] = []
    degrees = list(dict.fromkeys(check_sums(case.plan).mixup_degree for case in cases))
    for degree, own in zip(degrees, generator.spawn(len(degrees)), strict=True):
        mine = [case for case in cases if check_sums(case.plan).mixup_degree == degree]
        group = RowMembers.draw(scene, check_sums(mine[0].plan), degree, originals, own)
        pictures.append(_flat(group.judged(group.targets), originals))
        row_labels.append(f"m = {degree}: raw")
        for case in mine:
            if progress is not None:
                progress("settings", len(results), len(cases))
            result, recovered = _attack(
                scene, group, case, centre, config or InversionConfig(), attempts, own, progress
            )
            results.append(result)
            pictures.append(_flat(recovered, originals))
            row_labels.append(f"m = {degree}: {case_name(case.epsilon)}")
    if progress is not None:
        progress("settings", len(cases), len(cases))
    grid = np.rint(np.stack(pictures) * 255).astype(np.uint8)
    return InversionStudy(tuple(results), grid, tuple(row_labels))


def case_name(epsilon: float | None) -> str:
    """``"no noise"`` or ``"ε = 8"``."""
    return "no noise" if epsilon is None else f"ε = {rounded_up(epsilon)}"


_Found = tuple[Attempt, NDArray[np.float32]]


def _attack(
    scene: InversionScene,
    group: RowMembers,
    case: InversionCase,
    centre: NDArray[np.float32] | None,
    config: InversionConfig,
    attempts: Sequence[Attempt] | None,
    generator: np.random.Generator,
    progress: Progress | None,
) -> tuple[CaseResult, NDArray[np.float32]]:
    """Attack the rows of one setting, and compare; also the recovered images in the originals' order."""
    plan, noisy = check_sums(case.plan), case.epsilon is not None
    transform = transform_of(scene, plan, centre, generator if noisy else None)
    mixed = MixedFeatures(scene.extractor.differentiable(scene.shape), transform, plan.divisor)
    tries = tuple(attempts or (NOISY if noisy else QUIET))

    def release(members: NDArray[np.float32]) -> NDArray[np.float32]:
        features = scene.extractor.extract(members.reshape(-1, *scene.shape))
        order = np.arange(len(features)).reshape(members.shape[:2])
        return rows_of_members(plan, transform, features, list(order), generator if noisy else None)

    def search(rows: NDArray[np.float32], attempt: Attempt, effort: InversionConfig) -> list[_Found]:
        """Return the images found, as they are and brightened."""
        images = invert(
            mixed,
            rows,
            scene.shape,
            plan.mixup_degree,
            generator,
            tv_weight=attempt.tv_weight,
            start=group.mean if attempt.from_mean else None,
            config=effort,
            progress=progress,
        )
        return [(attempt, images), (replace(attempt, stretch=True), _stretched(images, group.brightest))]

    rows = release(group.targets)
    if noisy:
        trial = replace(config, steps=max(1, config.steps // _TRIAL))
        practice = release(group.trials)
        tried = [search(practice, attempt, trial) for attempt in tries]
        best = _best_on_public(group.judged(group.trials), tried)
        recovered = dict(search(rows, replace(best, stretch=False), config))[best]
    else:
        best, recovered = _best_fit(
            mixed, rows, [found for attempt in tries for found in search(rows, attempt, config)]
        )
    judged = group.judged(group.targets)
    mean = np.broadcast_to(group.mean, (len(judged), 1, *scene.shape))
    result = CaseResult(
        m=plan.mixup_degree,
        epsilon=case.epsilon,
        noise_std=plan.noise_std_x if noisy else 0.0,
        recovered=best_matches(judged, recovered),
        others=best_matches(judged, group.others),
        mean_image=best_matches(judged, mean),
        attempt=best,
        originals=judged.shape[0] * judged.shape[1],
    )
    order = match_order(judged, recovered)
    return result, np.take_along_axis(recovered, order.reshape(*order.shape, *(1 for _ in scene.shape)), axis=1)


def _best_on_public(originals: NDArray[np.float32], tried: Sequence[list[_Found]]) -> Attempt:
    """Return the try on rows of public images that is most like them; then the better brightness of the two."""
    best = max(tried, key=lambda pair: best_correlation(originals, pair[0][1]))
    return min(best, key=lambda found: best_matches(originals, found[1], False).mse)[0]


def _best_fit(
    mixed: MixedFeatures, rows: NDArray[np.float32], tried: Sequence[_Found]
) -> tuple[Attempt, NDArray[np.float32]]:
    """For each row the images that explain it best, which anyone can see without noise; and the try that won most."""
    targets = torch.from_numpy(rows)
    with torch.no_grad():
        gaps = [(mixed(torch.from_numpy(images)) - targets).square().sum(dim=1).numpy() for _, images in tried]
    winners = np.argmin(gaps, axis=0)
    images = np.stack([tried[winner][1][row] for row, winner in enumerate(winners)])
    return tried[int(np.bincount(winners).argmax())][0], images


def _stretched(images: NDArray[np.float32], brightest: float) -> NDArray[np.float32]:
    """Each image scaled so that its brightest pixel is ``brightest``."""
    highest = images.max(axis=tuple(range(2, images.ndim)), keepdims=True)
    return np.asarray(np.clip(images * (brightest / np.maximum(highest, 1e-3)), 0, 1), np.float32)


def _flat(images: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    return images.reshape(-1, *images.shape[2:])[:columns]
