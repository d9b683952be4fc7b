"""Poisoned images against defences: an attack's success rate, and the most that a guarantee allows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.data.dataset import Source
from privmix.devices import chosen_device
from privmix.errors import InvalidInput, check_integer, in_terms_of
from privmix.features.identity import Pixels, unit_range
from privmix.jobs.dataset import open_dataset
from privmix.jobs.models import has_splits
from privmix.jobs.places import check_writable
from privmix.jobs.recording import Measured, Measurement, place
from privmix.progress import Progress, silent
from privmix.research.poisoning.base import DEFENCES, Attack, Defence, parse_attack, parse_defence
from privmix.research.poisoning.images import VictimImages
from privmix.research.poisoning.options import PoisoningOptions
from privmix.research.poisoning.trials import PoisoningResult, TrialConfig, run_trials
from privmix.research.poisoning.victims.extractor import pretrained
from privmix.research.poisoning.victims.ordinary import Victim, VictimConfig
from privmix.rounding import rounded_up
from privmix.training.examples import ImageLayout

STATEMENTS: Final = (
    "An attack that reaches little proves little: others may reach more. Only a guarantee bounds all attacks.",
    "Intervals are over trials, each with its own classes, image and randomness, on these records and this network.",
    "The bound is on the mean success over such trials. It starts from the upper limit of the success without poison, "
    "so it is as sure as that; 100% where the defence guarantees nothing.",
)
OWN_ONLY: Final = "Computed from private records, without any guarantee: for the data's owner only."
DELTA: Final = 1e-5
# For encoded images and for labels without names, where nothing is declared. Declared here, and taken from no record.
_SIDE: Final = 32
_COLOUR: Final = "rgb"
_CLASSES: Final = 10
_BATCH: Final = 2048


@dataclass(frozen=True, repr=False)
class PoisoningResults(Measured):
    """An attack's results: one per defence, in the order of the options."""

    results: tuple[PoisoningResult, ...]

    def shown(self) -> tuple[str, Mapping[str, object]]:
        first, content = self.results[0], self.measurement.content
        level = f"{100 * content['confidence']:g}%"
        return f"{first.attack}: {content['about']}", {
            "threat": first.threat,
            "success": first.success_means,
            "tried": f"{first.trials} trials, {content['records']:,} records",
            **{f"against {one.defence}": _reached(one, level) for one in self.results},
        }

    @property
    def details(self) -> tuple[str, ...]:
        """The guarantees of the defences, and the statements that must accompany the figures."""
        held = [f"{one.defence} guarantees {one.guarantee}" for one in self.results if one.guarantee is not None]
        return (*held, *STATEMENTS)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Results above a defence's guarantee, and who may see the figures."""
        broken = [
            f"{one.defence} allows more than it guarantees, or it was chance" for one in self.results if one.above_bound
        ]
        return (*broken, *([OWN_ONLY] if self.measurement.private else []))

    def to_dict(self) -> dict[str, Any]:
        """JSON values: all results, and with them the fields of the one, where there is one."""
        return {**self.measurement.content, "private": self.measurement.private}


def _reached(one: PoisoningResult, level: str) -> str:
    low, high = one.interval
    bound = (
        "nothing certified"
        if one.guarantee is None
        else f"certified: at most {rounded_up(100 * one.certified_bound, 3)}%"
    )
    dropped = f", {one.removed:.1f} dropped ({one.removed_poisoned:.1f} poisoned)" if one.removed else ""
    return (
        f"{one.successes} of {one.trials} ({level} interval {100 * low:.0f}% to {100 * high:.0f}%), "
        f"{100 * one.share:.1f}% of goal inputs, accuracy {100 * one.accuracy:.2f}%, {bound}{dropped}"
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PoisoningJob(PoisoningOptions):
    """Poison some records, train with a defence in place, and count how often the attacker gets the wanted class."""

    # All defences meet the same trials. The figures are for the owner, unless the data are public.
    data: Any = field(repr=False)

    def run(self, progress: Progress | None = None) -> PoisoningResults:
        """Attack; raises InvalidInput before anything is trained."""
        with in_terms_of({"poisoning attack": "attack"}, part="attack"):
            attack = parse_attack(self.attack)
        defences = self._defences()
        self._config(1)
        victim, device = self._victim(), str(chosen_device(self.device))
        work, tell = None if self.work is None else Path(self.work), progress or silent
        if work is not None:
            check_writable("work", work)
        source, held = self._open()
        train, others = self._drawn(source, attack, tell)
        config = self._config(self._budget(len(train)))
        test = _read(held, [self._chosen(held.schema.records, self.test_records)], tell)[0]
        extractor = None if others is None else pretrained(others, victim, seed=self.seed, device=device)
        results = run_trials(
            attack, defences, train, test, Victim(victim, extractor, device), config, work=work, progress=tell
        )
        return PoisoningResults(self._measurement(attack, results, victim, config, len(train)), tuple(results))

    def _defences(self) -> list[Defence]:
        with in_terms_of(part="defence"):
            found = [parse_defence(one) for one in defence_names(self.defences)]
        if self.design is not None:
            if self.epsilon is None:
                raise InvalidInput("epsilon", None, "a number, for releases of the `design`")
            delta = DELTA if self.delta is None else self.delta
            found.append(parse_defence(f"release:{self.design},{self.epsilon},{delta}"))
        else:
            for name in ("epsilon", "delta"):
                if getattr(self, name) is not None:
                    raise InvalidInput(name, getattr(self, name), "only with a `design`")
        return found or [parse_defence("none")]

    def _victim(self) -> VictimConfig:
        with in_terms_of({"preset": "recipe"}):
            found = VictimConfig() if self.recipe is None else VictimConfig.named(self.recipe)
        given: dict[str, Any] = {"network": self.network, "epochs": self.epochs}
        return replace(found, **{name: value for name, value in given.items() if value is not None})

    def _config(self, poisoned: int) -> TrialConfig:
        return TrialConfig(poisoned, self.trials, self.seed, self.adaptive, self.confidence)

    def _budget(self, records: int) -> int:
        text = str(self.poisoned).strip()
        try:
            number = float(text.removesuffix("%"))
            count = number / 100 * records if text.endswith("%") else number
            if not np.isfinite(count) or (count != int(count) and not text.endswith("%")):
                raise ValueError
        except ValueError:
            raise InvalidInput("poisoned", self.poisoned, "a number of records, or a share such as 1%") from None
        # Shares are rounded down: the measured share never exceeds the declared one.
        if int(count) < 1 or count >= records:
            allowed = f"1 record or more, and fewer than the {records} that there are"
            raise InvalidInput("poisoned", self.poisoned, allowed)
        return int(count)

    def _open(self) -> tuple[Source, Source]:
        """Return the trainer's dataset, and the one that is measured on."""
        if self.held_out is None and not has_splits(self.data):
            raise InvalidInput("held_out", None, "images to measure on, since these data have no splits")
        source = self._opened(self.data, self.split, None)
        shape = source.schema.input_shape
        if source.schema.columns is not None:
            raise InvalidInput("data", "texts or a table", "images")
        ImageLayout.of_input(shape)
        with in_terms_of({"split": "test_split"}):
            if self.held_out is None:
                held = self._opened(self.data, self.test_split, shape)
            else:
                held = self._opened(self.held_out, self.test_split if has_splits(self.held_out) else "train", shape)
        if held.schema.input_shape != shape:
            raise InvalidInput("held_out", held.schema.input_shape, f"images of shape {shape}")
        if held.schema.classes != source.schema.classes:
            raise InvalidInput("classes", list(held.schema.classes), f"those of the trainer: {source.schema.classes}")
        return source, held

    def _opened(self, data: Any, split: str, shape: tuple[int, ...] | None) -> Source:
        """Return a dataset; what a reader asks to be declared has defaults here."""
        classes, columns = self.classes, self.as_columns()
        for _ in range(3):
            try:
                found = open_dataset(data, Pixels(), split=split, classes=classes, columns=columns, input_shape=shape)
            except InvalidInput as error:
                if error.field == "classes" and classes is None:
                    classes = _CLASSES
                elif error.field == "images" and (columns.image_size is None or columns.colour is None):
                    size, colour = columns.image_size or _SIDE, columns.colour or _COLOUR
                    columns = replace(columns, image_size=size, colour=colour)
                else:
                    raise
            else:
                return found.source
        raise AssertionError("every default is tried once")

    def _chosen(self, records: int, wanted: int | None, *, other: int = 0) -> NDArray[np.int64]:
        """Which of a dataset's records are taken: by the seed and their number, never by their content."""
        order = np.random.default_rng([self.seed, records]).permutation(records)
        return np.sort(order[other:][:wanted])

    def _drawn(self, source: Source, attack: Attack, progress: Progress) -> tuple[VictimImages, VictimImages | None]:
        """Return the trainer's images, and other ones for the extractor where the attack is on transfer learning."""
        there, transfer = source.schema.records, attack.setting == "transfer"
        wanted = self.records
        if wanted is None:
            wanted = there // 2 if transfer else there
        check_integer("records", wanted, low=2, high=there)
        check_integer("test_records", self.test_records, low=1)
        parts = [self._chosen(there, wanted)]
        if transfer:
            check_integer("extractor_records", self.extractor_records, low=1)
            if wanted == there:
                allowed = f"fewer than the {there} that there are: the extractor of {attack.name} is trained on others"
                raise InvalidInput("records", wanted, allowed)
            parts.append(self._chosen(there, self.extractor_records, other=wanted))
        found = _read(source, parts, progress)
        return found[0], found[1] if transfer else None

    def _measurement(
        self, attack: Attack, results: list[PoisoningResult], victim: VictimConfig, config: TrialConfig, records: int
    ) -> Measurement:
        # Settings may hold the place of an extractor.
        said = partial(place, private=not self.public_data)
        told = [one.to_dict() | {"attack": said(one.attack), "defence": said(one.defence)} for one in results]
        content = {
            **(told[0] if len(told) == 1 else {}),
            "attack": said(str(attack)),
            "about": attack.about,
            "threat": results[0].threat,
            "success_means": results[0].success_means,
            "setting": attack.setting,
            "records": records,
            "poisoned_records": config.poisoned,
            "trials": config.trials,
            "confidence": config.confidence,
            "results": told,
        }
        return Measurement(
            "poisoning",
            {"kind": "design", "id": None},
            content,
            private=not self.public_data,
            settings={
                **asdict(config),
                **asdict(victim),
                "test_records": self.test_records,
                **({"extractor_records": self.extractor_records} if attack.setting == "transfer" else {}),
                "splits": [self.split, self.test_split],
            },
            title=f"Poisoning: {said(str(attack))}",
            statements=STATEMENTS if self.public_data else (*STATEMENTS, OWN_ONLY),
        )


def defence_names(given: str | Sequence[str] | None) -> list[str]:
    """Defences by name, from a list or from a text with commas, which are also between a defence's settings."""
    if given is None or not isinstance(given, str):
        return [] if given is None else [str(one) for one in given]
    found: list[str] = []
    for piece in (piece.strip() for piece in given.split(",")):
        if found and ":" in found[-1] and re.split("[:+]", piece)[0] not in DEFENCES:
            found[-1] += f",{piece}"
        else:
            found.append(piece)
    return found


def _read(source: Source, parts: list[NDArray[np.int64]], progress: Progress) -> list[VictimImages]:
    """Return the images of these indices, each part for itself; the others are read and let go."""
    layout, schema = ImageLayout.of_input(source.schema.input_shape), source.schema
    pixels: list[list[NDArray[np.float32]]] = [[] for _ in parts]
    labels: list[list[NDArray[np.int64]]] = [[] for _ in parts]
    done = 0
    for batch in source.batches(_BATCH):
        for part, kept, held in zip(parts, pixels, labels, strict=True):
            mine = part[(part >= done) & (part < done + len(batch))] - done
            kept.append(unit_range(batch.x[mine]))
            held.append(batch.y[mine])
        done += len(batch)
        progress("images", done, schema.records)
    height, width, channels = layout.height, layout.width, layout.channels
    found = []
    for kept, held in zip(pixels, labels, strict=True):
        images = np.concatenate(kept).reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
        found.append(VictimImages.of(np.ascontiguousarray(images), np.concatenate(held), classes=schema.num_classes))
    return found
