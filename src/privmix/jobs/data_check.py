"""Findings of a check of a private dataset, for its owner's eyes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.features.base import UNKNOWN
from privmix.jobs.dataset import PUBLISHED_NAMES, shown_names
from privmix.shown import Shown

NOT_FOR_OTHERS: Final = (
    "Keep this output private: it describes private records, and no guarantee covers choices that you base on it. "
    "Correct the data; take ranges, categories and bounds from public sources."
)
# If more than this share of records are cut to one length, their differences in length are lost.
_FLATTENED: Final = 0.5
# If more than this share of texts are unknown to the encoder, the language is another one.
_FOREIGN: Final = 0.1
# Classes whose sizes a summary has.
_MOST_CLASSES: Final = 20


@dataclass(frozen=True)
class Misfit:
    """One value that does not fit, or that is read as another."""

    # `record`: from 1, without a CSV header. `column` is None for the whole record. `refused`: a release ends here,
    # after its budget is charged; False: the value is taken as `why` states. `value` is None unless it is shown.
    file: str | None
    record: int
    column: str | None
    why: str
    refused: bool
    value: str | None = None

    @property
    def place(self) -> str:
        column = f", column {self.column}" if self.column else ""
        return f"{self.file or 'memory'}, record {self.record:,}{column}"

    @property
    def told(self) -> str:
        return self.why if self.value is None else f"{self.why}: {self.value!r}"


@dataclass(frozen=True)
class PersonsCheck:
    """Numbers of persons: with an identifier, largest number of records, records without identifier. Private."""

    persons: int
    largest: int
    without: int

    @classmethod
    def of(cls, whose: NDArray[np.int64]) -> PersonsCheck:
        """From (n,) numbers of persons, -1 where there is no identifier."""
        counts = np.unique(whose[whose >= 0], return_counts=True)[1]
        return cls(len(counts), int(counts.max(initial=0)), int((whose < 0).sum()))

    def __str__(self) -> str:
        return f"{self.persons:,}, at most {self.largest:,} records each; {self.without:,} records without identifier"


@dataclass(eq=False, repr=False)
class DataCheck(Shown):
    """Findings of a check. Private: for the owner of the data alone.

    Attributes:
        records: number of checked records.
        misfits: the first 100 of each kind.
        counts: (column, why, refused) -> number of values; all of them.
        classes: class -> records.
        clip_norm: the bound that norms were compared with.
        norms: (n,) lengths of the fitting records' features before clipping.
        plain_numbers: features are the numbers of the data as they are.
        persons: of the records; None without persons.
        like_thousands: columns of numbers with decimal marks -> whether each mark has three digits after it.
        unread: files that lie with the records and are not read; see :class:`privmix.data.Source`.
        published_names: of columns and classes, which a release states.
        listed: number of places that a summary names.
    """

    records: int
    classes: dict[str, int]
    clip_norm: float
    plain_numbers: bool
    misfits: list[Misfit] = field(default_factory=list, repr=False)
    counts: Counter[tuple[str | None, str, bool]] = field(default_factory=Counter)
    norms: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    persons: PersonsCheck | None = None
    like_thousands: dict[str, bool] = field(default_factory=dict)
    unread: str = ""
    published_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    listed: int = 20

    def shown(self) -> tuple[str, Mapping[str, object]]:
        counts = sorted(self.counts.items(), key=lambda item: (not item[0][2], -item[1]))
        misfits = {
            f"{column or 'label'}: {why}": f"{count:,}, {'refused' if refused else 'taken'}"
            for (column, why, refused), count in counts
        }
        total = max(1, sum(self.classes.values()))
        largest = sorted(self.classes.items(), key=lambda item: -item[1])[:_MOST_CLASSES]
        shares = ", ".join(f"{name} {count:,} ({100 * count / total:.1f}%)" for name, count in largest if count)
        return f"Check of {self.records:,} records: {self.verdict}", {
            **misfits,
            **{one.place: one.told for one in self.misfits[: self.listed]},
            PUBLISHED_NAMES: shown_names(self.published_names),
            **({"clipped": f"{100 * self.clipped:.1f}% at {self.clip_norm:g}"} if len(self.norms) else {}),
            **({"classes": shares} if shares else {}),
            **({} if self.persons is None else {"persons": str(self.persons)}),
            **({"warnings": "; ".join(self.warnings)} if self.warnings else {}),
            "for": NOT_FOR_OTHERS,
        }

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: that of wrong input where a release would be refused."""
        return 0 if self.fits else InvalidInput.exit_code

    @property
    def fits(self) -> bool:
        """Whether a release would take every record."""
        return not any(refused for _, _, refused in self.counts)

    @property
    def verdict(self) -> str:
        if not self.fits:
            return "a release would be refused"
        if not self.counts:
            return "every record fits"
        return f"no record is refused; {sum(self.counts.values()):,} values are read as missing or as other values"

    @property
    def clipped(self) -> float:
        """Share of the records whose features are longer than the bound."""
        return float((self.norms > self.clip_norm).mean()) if len(self.norms) else 0.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why a release would be poor, though every value fits."""
        found = []
        if self.plain_numbers and self.clipped > _FLATTENED:
            found.append(
                f"{100 * self.clipped:.1f}% of the records are longer than the clipping bound {self.clip_norm:g} and "
                "are cut to it, which keeps only the proportions of plain numbers. Declare a larger bound from "
                "public knowledge (`clip_norm`), or a table's ranges and categories: `features` tabular:SPEC.json"
            )
        for name in (name for name, alike in self.like_thousands.items() if alike):
            found.append(
                f"column {name}: every decimal mark is followed by three digits. If it separates thousands, each "
                f'number is read as a thousandth of it: declare "thousands" for the column in the specification'
            )
        empty = [name for name, count in self.classes.items() if not count]
        if empty and sum(self.classes.values()):
            found.append(f"{len(empty)} of {len(self.classes)} declared classes have no record")
        unknown = sum(count for (_, why, _), count in self.counts.items() if why == UNKNOWN)
        if unknown > _FOREIGN * self.records:
            found.append(
                f"{100 * unknown / self.records:.1f}% of the texts consist of words unknown to the encoder: their "
                f"features carry almost no information. Use an encoder of their language (`features` text:MODEL)"
            )
        return (*found, *filter(None, [self.unread]))

    def to_dict(self) -> dict[str, Any]:
        """JSON values. Private."""
        lengths = np.quantile(self.norms, (0.0, 0.5, 0.99, 1.0)).tolist() if len(self.norms) else [None] * 4
        return {
            "for_the_owner_alone": NOT_FOR_OTHERS,
            "records": self.records,
            "fits": self.fits,
            "counts": [
                {"column": column, "why": why, "refused": refused, "values": count}
                for (column, why, refused), count in self.counts.items()
            ],
            "misfits": [vars(one) for one in self.misfits],
            "classes": dict(self.classes),
            "published_names": dict(self.published_names),
            "clip_norm": self.clip_norm,
            "clipped": self.clipped,
            "norms": dict(zip(("least", "median", "99%", "largest"), lengths, strict=True)),
            **({} if self.persons is None else {"persons": vars(self.persons)}),
            "warnings": list(self.warnings),
        }
