"""Who the attacker is: what may be changed, what is known, and what counts as success."""

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from privmix.errors import WITHHELD, InvalidInput
from privmix.fields import Choice, Count, Proportion, check_fields
from privmix.research.poisoning.images import Poisoned, VictimImages

HOW: Final = ("changed", "inserted")
# Pixels are float32: what was clipped at a radius lies this near to it.
_ROUNDING: Final = 1e-6


@dataclass(frozen=True)
class ThreatModel:
    """An attacker's limits, stated by the attack; the runner checks every poisoned dataset against them."""

    # `radius`: most that a pixel moves, in [0, 1]; None: no limit. `patch`: side of the one square of each record
    # to which changes are confined, or, with a radius, in which pixels may move further. `success`: in words.
    records: Count
    how: Annotated[str, Choice(*HOW)] = "changed"
    radius: Proportion | None = None
    patch: Count | None = None
    clean_label: bool = True
    knows_defence: bool = False
    success: str = "an image of the test set, drawn before the attack, gets the class that the attacker wants"

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("radius", "patch"):
            if self.how == "inserted" and getattr(self, name) is not None:
                raise InvalidInput(
                    name, getattr(self, name), "no value where records are inserted: they have no earlier class"
                )

    def describe(self) -> str:
        limits = [f"{self.records} record{'s' * (self.records != 1)} {self.how}"]
        if self.how == "inserted":
            limits.append("pixels at will")
        if self.radius is not None:
            limits.append(f"pixels by at most {255 * self.radius:.4g}/255" if self.radius else "pixels kept")
        if self.patch is not None:
            where = "inside one square" if self.radius is None else "further inside one square"
            limits.append(f"{where} of {self.patch} x {self.patch} pixels each")
        limits.append("labels kept" if self.clean_label and self.how == "changed" else "labels at will")
        return f"{', '.join(limits)}; the defence is {'known' if self.knows_defence else 'not known'}"

    def check(self, clean: VictimImages, poisoned: Poisoned) -> None:
        """Raise unless `poisoned` is within the limits; for attacks of other packages as for our own."""
        for images in (poisoned.records, poisoned.goals):
            # A NaN is within no limit, and compares as if it were.
            VictimImages.of(images.pixels, images.labels, classes=clean.classes)
            if images.shape != clean.shape:
                raise InvalidInput("poisoned records", images.shape, f"images of shape {clean.shape}")
        if not len(poisoned.goals):
            raise InvalidInput("goals", 0, "one input or more, the drawn one first")
        touched = poisoned.indices
        if len(np.unique(touched)) != len(touched) or len(touched) > self.records:
            raise InvalidInput("poisoned records", len(touched), f"at most {self.records}, each once")
        records = poisoned.records
        inserted = len(records) - len(clean)
        if inserted != (len(touched) if self.how == "inserted" else 0):
            raise InvalidInput("poisoned records", inserted, f"records that are {self.how}")
        others = np.delete(np.arange(len(records)), touched)
        before = np.arange(len(clean)) if self.how == "inserted" else others
        if not (
            np.array_equal(records.pixels[others], clean.pixels[before])
            and np.array_equal(records.labels[others], clean.labels[before])
        ):
            raise InvalidInput("poisoned records", "others", "no change to any other record")
        if self.how == "changed":
            self._check_changes(clean, poisoned)

    def _check_changes(self, clean: VictimImages, poisoned: Poisoned) -> None:
        touched = poisoned.indices
        if self.clean_label and not np.array_equal(poisoned.records.labels[touched], clean.labels[touched]):
            raise InvalidInput("labels", "changed", "those of the clean records")
        moved = np.abs(poisoned.records.pixels[touched] - clean.pixels[touched])
        if self.patch is not None:
            # How far pixels may move outside the square; inside there is no limit.
            outside = 0.0 if self.radius is None else self.radius + _ROUNDING
            for image in moved.max(axis=1):
                rows, columns = np.nonzero(image > outside)
                if len(rows) and max(np.ptp(rows), np.ptp(columns)) >= self.patch:
                    raise InvalidInput("pixels", "outside the patch", f"one square of {self.patch} x {self.patch}")
        elif self.radius is not None and moved.size and moved.max() > self.radius + _ROUNDING:
            raise InvalidInput("pixels", WITHHELD, f"moved by at most {255 * self.radius:.4g}/255")
