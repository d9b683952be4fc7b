"""What is asked of a release, option by option; importing this takes no time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix._registry import literals_of
from privmix.certificate.about import About
from privmix.errors import InvalidInput, in_terms_of
from privmix.jobs.columns import Columns
from privmix.jobs.options import ADDRESS_HELP, AUTO, CAP_HELP, CLASSES_HELP, CLASSIFY, GOAL_HELP, Inputs, JobOptions
from privmix.jobs.persons import PERSONS_PANEL, Persons
from privmix.options import EXPERT, described, option, said

if TYPE_CHECKING:
    from privmix.certificate.sealed_key import Auditor
    from privmix.learning.holdings import Holdings
    from privmix.plans import Design

DEFAULT_CLIP_NORM: Final = 1.0
"""Features of extractors lie within it; plain numbers seldom do."""

_PLANNER: Final = "Planner"
_PUBLIC: Final = "Public data"
_SIZE: Final = "Size and engines"

PROCEDURAL: Final = "procedural:"
"""Before the name of a generator of public data."""

_GENERATORS: Final = ", ".join(f"{PROCEDURAL}{said['name']}" for said in literals_of("privmix.procedural"))


@described
@dataclass(frozen=True, eq=False)
class Assumptions:
    """What the planner may assume of the private records: public records like them, or a spectrum."""

    proxy: Any = option(
        None, "A PUBLIC dataset like the private one, for the planner; read like `data`. Never private data.", _PLANNER
    )
    proxy_classes: Any = option(None, "Class list of `proxy`. Default: that of the private data.", _PLANNER)
    spectrum_decay: float | None = option(
        None,
        "Planner without `proxy`: variance along axis i falls as (i + 4)^-DECAY. Default: the extractor's, 1.1 or 1.6.",
        _PLANNER,
    )
    between_share: float | None = option(
        None,
        "Planner without `proxy`: share of variance between classes. Default: 0.28 for scattering, else what fits "
        "`attainable`; at most 1 - K^-0.25.",
        _PLANNER,
    )
    attainable: float | None = option(
        None,
        "Planner without `proxy`: accuracy that you expect WITHOUT privacy, from what is public. Default 0.9.",
        _PLANNER,
        common=True,
    )
    records_per_person: Any = option(
        None,
        "Planner, for persons: how many records each has, by PUBLIC knowledge; or several numbers with commas, each of "
        "equally many persons (quantiles). Never looked up in private data. Default: 1.",
        _PLANNER,
    )

    @property
    def given(self) -> bool:
        """Whether anything is assumed but what is usual."""
        return any(getattr(self, name) is not None for name in self.__dataclass_fields__)

    @property
    def holdings(self) -> Holdings | None:
        """How many records persons have, where it is declared.

        Raises:
            InvalidInput: these are no such numbers.
        """
        if self.records_per_person is None:
            return None
        # Imported here: options are listed without it.
        from privmix.learning.holdings import Holdings

        return Holdings.of(self.records_per_person)

    def check(self, *, of_persons: bool) -> None:
        """Raise :class:`InvalidInput` where these do not go together, or not with the unit of privacy."""
        if self.holdings is not None and not of_persons:
            raise InvalidInput(
                "records_per_person", self.records_per_person, "nothing without `person`: records are the units"
            )
        if self.proxy is None and self.proxy_classes is not None:
            raise InvalidInput("proxy_classes", self.proxy_classes, "a class list of `proxy`, which is not given")
        declared = (self.spectrum_decay, self.between_share, self.attainable)
        if self.proxy is not None and any(value is not None for value in declared):
            raise InvalidInput("proxy", _shown(self.proxy), "either public data or a declared spectrum")


@described
@dataclass(frozen=True, eq=False)
class Prior:
    """Public data that features are whitened by, before a private record is read."""

    public: Any = option(
        None,
        "Whiten features by the within-class covariance of PUBLIC data like the private: "
        f"{_GENERATORS}, or a dataset, read like `data`. Never private data.",
        _PUBLIC,
    )
    public_classes: Any = option(None, "Class list of `public`. Default: that of the private data.", _PUBLIC)
    public_records: int | None = option(
        None, "Records to draw for `public` (default 4,000), or to take of it (default: all).", _PUBLIC
    )

    @property
    def generator(self) -> str | None:
        """Name of the generator, where one makes the data."""
        named = isinstance(self.public, str) and self.public.startswith(PROCEDURAL)
        return self.public.removeprefix(PROCEDURAL) if named else None

    @property
    def data(self) -> Any:
        """The data, where somebody gave them."""
        return self.public if self.generator is None else None

    def check(self) -> None:
        """Raise :class:`InvalidInput` where these do not go together."""
        for name in ("public_classes", "public_records"):
            if self.public is None and getattr(self, name) is not None:
                raise InvalidInput(name, _shown(getattr(self, name)), "nothing without `public`")


_REPLAY: Final = "Replay by an auditor"


@described
@dataclass(frozen=True, eq=False)
class ReplayTerms:
    """Who may make the release again next to the records: an auditor to whose public key the run's key is sealed."""

    replay_for: Path | None = option(
        None,
        "Seal the run's key to this auditor's public key (privmix keygen --auditor) instead of destroying it, as "
        "OUT.sealed-key.json: keep that closed. Anyone who opens it can remove all noise.",
        _REPLAY,
    )
    replay_until: str | None = option(
        None, "YYYY-MM-DD: by the end of that day the sealed key is to be destroyed. Needed with `replay_for`.", _REPLAY
    )

    @property
    def given(self) -> bool:
        """Whether anything is asked for."""
        return self.replay_for is not None or self.replay_until is not None

    def auditor(self) -> Auditor | None:
        """Whom the key is to be sealed for; None: nobody.

        Raises:
            InvalidInput: options do not go together, or the file holds no auditor's public key.
            StorageError: it can't be read.
        """
        if not self.given:
            return None
        if self.replay_for is None:
            raise InvalidInput("replay_until", self.replay_until, "nothing without `replay_for`")
        if self.replay_until is None:
            raise InvalidInput("replay_until", None, "the day, YYYY-MM-DD, by whose end the sealed key is destroyed")
        # Help is made without it.
        from privmix.certificate.auditor_keys import AuditorPublicKey
        from privmix.certificate.sealed_key import Auditor

        with in_terms_of({"until": "replay_until"}):
            return Auditor(AuditorPublicKey.read(Path(self.replay_for)), self.replay_until)


@described
@dataclass(frozen=True, eq=False)
class ReleaseOptions(JobOptions):
    """What is asked of a release."""

    design: str | Design[Any] = option(AUTO, "A design, or its name; auto: the planner chooses by public facts alone.")
    options: Mapping[str, Any] = field(
        default_factory=dict, metadata=said("Of the design, by name, in place of its own.")
    )
    goal: str = option(CLASSIFY, GOAL_HELP, EXPERT)
    rows: int | None = option(None, "Rows to release, T. Default: n; moments: at most 10,000.", EXPERT)
    centre: str | None = option(None, "private releases and subtracts the mean first; none.", EXPERT)
    clip_norm: float = option(
        DEFAULT_CLIP_NORM, "Bound on a record's feature norm: longer records are cut to it.", EXPERT
    )
    residual_clip_norm: float = option(0.55, "Bound after centring, as a share of `clip_norm`.", EXPERT)
    split: str = option("train", "Which part of the dataset.")
    classes: Any = option(None, CLASSES_HELP)
    columns: Columns = field(default_factory=Columns)
    records: int | None = option(
        None, "A public record count to use in place of the real one. With persons: how many there are.", EXPERT
    )
    private_count: bool = option(
        False, "Keep the record count private: estimate it with noise, for a tenth of the budget.", EXPERT
    )
    person_quantile: float | None = option(
        None,
        "With `private_count`: estimate K (`per_person`), too, for half of that tenth: the number of records that this "
        "share of the persons, such as 0.9, do not pass.",
        PERSONS_PANEL,
    )
    assumptions: Assumptions = field(default_factory=Assumptions)
    prior: Prior = field(default_factory=Prior)
    about: About = field(default_factory=About)
    persons: Persons = field(default_factory=Persons)
    replay: ReplayTerms = field(default_factory=ReplayTerms)
    project: int | None = option(
        None,
        "Project features to this many numbers, by a public random projection; for more than 8,192 of them.",
        EXPERT,
    )
    store: Path | None = option(None, "Keep extracted features here (private!) and reuse them.", _SIZE)
    ledger: Any = field(
        default=None,
        repr=False,
        metadata=said("Charge this ledger before reading: sqlite:///FILE or postgresql://..."),
    )
    dataset: str | None = option(None, "With `ledger`: the dataset's name there.")
    most_per_person: int | None = option(None, CAP_HELP, EXPERT)
    engine: str = option("local", "local, or ray for a cluster; the release is the same.", _SIZE)
    memory_gb: float | None = option(
        None, "Memory for sums and records, GiB; more is streamed. Default: half of it all.", _SIZE
    )
    workers: int | None = option(None, "Threads (ray: tasks at once). Default: every core.", _SIZE)
    ray_address: str | None = option(None, ADDRESS_HELP, _SIZE)
    resume: bool = option(False, "Finish an interrupted run with the same options.")
    seed: int | None = option(None, "Tests and benchmarks only: the release is then NOT private.", EXPERT)
    dry_run: bool = option(False, "Show the plan; read no private row.")
    overwrite: bool = option(False, "Replace an existing `out`.")

    @property
    def design_name(self) -> str:
        """The design's name, or ``"auto"``."""
        return self.design if isinstance(self.design, str) else self.design.name


def _shown(data: Any) -> str:
    return data if isinstance(data, str) else type(data).__name__


def as_in_release(name: str, default: Any = None) -> Any:
    """An option with the text of a release's; its default, where none is given here."""
    item = ReleaseOptions.__dataclass_fields__[name]
    return field(default=item.default if default is None else default, metadata=item.metadata, repr=item.repr)


NOT_IN_SERIES: Final = (
    *("design", "options", "goal", "out", "assumptions", "prior", "persons", "person_quantile", "private_count"),
    *("replay", "most_per_person", "engine", "ray_address"),
)
"""Options of a release that a series has not."""


@described
@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """The records of a later step of a series; the plan, the extractor and the classes are those of the first."""

    data: Any = as_in_release("data")
    split: str = as_in_release("split")
    inputs: Inputs = field(default_factory=Inputs)
    records: int | None = as_in_release("records")
    about: About = field(default_factory=About)
    store: Path | None = as_in_release("store")
    ledger: Any = option(None, "The ledger that the first step was charged to. It is charged nothing more.")
    memory_gb: float | None = as_in_release("memory_gb")
    workers: int | None = as_in_release("workers")
    resume: bool = as_in_release("resume")
    overwrite: bool = option(False, "Discard an interrupted attempt at this step, and make it from the same records.")


@described
@dataclass(frozen=True)
class PredictionOptions:
    """At which budget, of which records, and what may be assumed of them; all of it public."""

    epsilon: float = field(metadata=said("Privacy budget, epsilon."))
    delta: float = field(metadata=said("Privacy budget, delta."))
    records: int = field(
        metadata=said("Record count: public, declared, or a private estimate. With `records_per_person`: of persons.")
    )
    classes: str = field(metadata=said("Class list: a number K, names with commas, or @FILE."))
    assumptions: Assumptions = field(default_factory=Assumptions)
    columns: Columns = field(default_factory=Columns)
    dim: int | None = option(None, "Features of a record. Not needed with `proxy` or features tabular:SPEC.")
    features: str = as_in_release("features", "identity")
    goal: str = as_in_release("goal", CLASSIFY)
    rows: int | None = option(None, "Rows to release, T. Default: n.")
    clip_norm: float = as_in_release("clip_norm", 1.0)
    residual_clip_norm: float = as_in_release("residual_clip_norm", 0.55)
    figure: Path | None = option(None, "Draw predicted accuracy against epsilon (.svg, .png).")
