"""Options of a release, one by one; importing this takes no time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.errors import InvalidInput, in_terms_of
from privmix.jobs import options as shared
from privmix.jobs.columns import Columns
from privmix.jobs.options import Local
from privmix.jobs.persons import PERSONS_PANEL, PrivateColumns
from privmix.named import options_in
from privmix.options import EXPERT, described, option, said

if TYPE_CHECKING:
    from privmix.certificate.about import About
    from privmix.certificate.sealed_key import Auditor
    from privmix.features.base import Extractor
    from privmix.learning.holdings import Holdings
    from privmix.ledger.ledger import Ledger
    from privmix.plans.design import Design

DEFAULT_CLIP_NORM: Final = 1.0
"""Features of extractors lie within it; plain numbers seldom do."""

_PLANNER: Final = "Planner"
_SIZE: Final = "Size and engines"


def _items(text: str) -> str:
    """Several, with ``|`` between them within KEY=VALUE,..."""
    return text.replace("|", ",")


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Assumptions:
    """Assumptions that the planner may make of the private records: public records like them, or a spectrum."""

    attainable: float | None = option(None, "Accuracy you expect without privacy, from public knowledge. Default: 0.9.")
    proxy: Any = option(None, "PUBLIC dataset like the private one, instead of `attainable`.", read=str)
    proxy_classes: Any = option(
        None, "Class list of `proxy`, separated by |. Default: the private data's.", read=_items
    )
    records_per_person: Any = option(
        None, "Public number of records per person, or quantiles separated by |.", read=_items
    )
    class_shares: Any = option(None, "Public shares of the classes, in their order, separated by |.", read=_items)
    auc: float | None = option(None, "With class_shares: AUC you expect without privacy. Default: 0.9.")
    spectrum_decay: float | None = option(None, "Decay of feature variance, as (i + 4)^-DECAY. Default: 1.1 or 1.6.")
    between_share: float | None = option(
        None, "Share of variance between classes. Default: 0.28 (scattering), else by `attainable`."
    )

    @classmethod
    def of(cls, given: Any) -> Assumptions:
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls(**options_in("assume", given, cls, of="assume"))
        known = [item.name for item in fields(cls)]
        if given is not None and not (isinstance(given, Mapping) and set(given) <= set(known)):
            shown = list(given) if isinstance(given, Mapping) else type(given).__name__
            raise InvalidInput("assume", shown, f"KEY=VALUE,... of {', '.join(known)}")
        return cls(**(given or {}))

    @property
    def any(self) -> bool:
        return any(getattr(self, item.name) is not None for item in fields(Assumptions))

    @property
    def holdings(self) -> Holdings | None:
        if self.records_per_person is None:
            return None
        # Imported here: options are listed without it.
        from privmix.learning.holdings import Holdings

        with in_terms_of({"records_per_person": "assume records_per_person"}):
            return Holdings.of(self.records_per_person)

    def check(self, *, of_persons: bool) -> None:
        """Raise :class:`InvalidInput` where these do not go together, or not with the unit of privacy."""
        if self.holdings is not None and not of_persons:
            allowed = "only with `person`: the release protects records"
            raise InvalidInput("assume records_per_person", self.records_per_person, allowed)
        if self.proxy is None and self.proxy_classes is not None:
            raise InvalidInput("assume proxy_classes", self.proxy_classes, "only with proxy")
        if self.class_shares is None and self.auc is not None:
            raise InvalidInput("assume auc", self.auc, "only with class_shares; `attainable` without")
        if self.class_shares is not None and self.attainable is not None:
            raise InvalidInput("assume attainable", self.attainable, "auc, where class_shares are declared")
        declared = (self.spectrum_decay, self.between_share, self.attainable, self.class_shares)
        if self.proxy is not None and any(value is not None for value in declared):
            shown = self.proxy if isinstance(self.proxy, str) else type(self.proxy).__name__
            raise InvalidInput("assume proxy", shown, "either proxy or a declared spectrum, not both")


ASSUMED: Final = {"": Assumptions}


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlannerAssumptions:
    """Assumptions of the planner, by public knowledge."""

    assume: str | Mapping[str, Any] | Assumptions | None = option(
        None,
        "Public knowledge for the planner: attainable=0.92, or proxy=DATA (PUBLIC data).",
        _PLANNER,
        in_python="Also a mapping.",
        common=True,
        kinds=f"{__name__}:ASSUMED",
    )

    @cached_property
    def assumed(self) -> Assumptions:
        return Assumptions.of(self.assume)


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReplayTerms:
    """Who may make the release again next to the records: an auditor to whose public key the run's key is sealed."""

    replay_for: str | Auditor | None = option(
        None, "Auditor's key and its end date, KEY.pub.pem:until=YYYY-MM-DD, for a replay.", EXPERT
    )

    @cached_property
    def auditor(self) -> Auditor | None:
        if self.replay_for is None:
            return None
        # Help is made without it.
        from privmix.certificate.sealed_key import Auditor, AuditorPublicKey

        if isinstance(self.replay_for, Auditor):
            return self.replay_for
        file, day, until = str(self.replay_for).rpartition(":until=")
        if not day:
            allowed = "KEY.pub.pem:until=YYYY-MM-DD, the day by whose end the sealed key is destroyed"
            raise InvalidInput("replay_for", self.replay_for, allowed)
        with in_terms_of({"until": "replay_for until"}):
            return Auditor(AuditorPublicKey.read(Path(file)), until)


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecordsOptions(Columns):
    """Records of a release, or of a step of a series, and their description."""

    split: str = option("train", "Split of the dataset.")
    classes: Any = option(None, shared.CLASSES_HELP)
    records: int | None = option(None, "Public record count (or person count) instead of the real one.", EXPERT)
    metadata: str | Path | Mapping[str, Any] | About | None = option(
        None, "TOML file with title, owner, contact, licence, purpose and date.", EXPERT, in_python="Also a mapping."
    )


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunOptions:
    """Machine of the work, and the budget that pays."""

    store: str | Path | None = option(None, shared.STORE_HELP, _SIZE)
    ledger: str | Ledger | None = field(default=None, repr=False, metadata=said(shared.LEDGER_HELP))
    engine: str | Local = option("local", shared.ENGINE_HELP, _SIZE, kinds="privmix.jobs.options:ENGINES")
    resume: bool = option(False, "Resume an interrupted run (same options).")
    overwrite: bool = option(False, "Replace an existing `out`.")


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TermsOptions:
    """At which price, and what is released of a record."""

    epsilon: float = option(MISSING, shared.EPSILON_HELP)
    delta: float = option(MISSING, shared.DELTA_HELP)
    features: str | Extractor = option("pixels", shared.FEATURES_HELP)
    rows: int | None = option(None, "Number of rows to release, T. Default: n (moments: at most 10,000).", EXPERT)
    centre: str | None = option(None, "Centring: private (releases and subtracts the mean) or none.", EXPERT)
    clip_norm: float = option(DEFAULT_CLIP_NORM, "Clipping bound on a record's feature norm.", EXPERT)
    residual_clip_norm: float | None = option(
        None, "Clipping bound after centring, as a share of `clip_norm`. Default: 0.55, less for tables.", EXPERT
    )
    project: int | None = option(
        None, "Number of features after a public random projection; needed above 8,192.", EXPERT
    )


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OnceOptions:
    """Options that are given once: for a release, or for the first step of a series."""

    dataset: str | None = option(None, "Name of the dataset in `ledger`.")
    seed: int | None = option(None, "Seed for tests and benchmarks: the release is then NOT private.", EXPERT)
    dry_run: bool = option(False, "Show the plan without reading a private row.", terminal=True)


@described
@dataclass(frozen=True, eq=False, repr=False)
class PlanOptions(PrivateColumns, RecordsOptions, TermsOptions, PlannerAssumptions, ReplayTerms):
    """Options that a plan follows from."""

    data: Any = field(metadata=said(shared.DATA_HELP, in_python=shared.DATA_IN_PYTHON))
    _: KW_ONLY
    design: str | Design[Any] = option(
        shared.AUTO,
        "Release design, as NAME or NAME:KEY=VALUE,...; auto: chosen by a planner.",
        names=shared.DESIGN_NAMES,
        in_python="Also an object of privmix.designs.",
        kinds=shared.DESIGN_KINDS,
    )
    goal: str = option(shared.CLASSIFY, "Goal of the planner: classify (accuracy) or table (pairs of columns).", EXPERT)

    @property
    def design_name(self) -> str:
        return self.design.partition(":")[0] if isinstance(self.design, str) else self.design.name


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReleaseOptions(PlanOptions, RunOptions, OnceOptions):
    """Options of a release."""

    out: str | Path | None = option(None, "Folder to create.", needed=True)
    with_rows: int | None = option(None, "Number of table rows in the folder, as `sample` makes them: rows.csv.")
    private_count: bool = option(False, "Keep the record count private: estimate it, using 10% of the budget.", EXPERT)
    person_quantile: float | None = option(
        None, "Share of persons for a private estimate of K, such as 0.9.", PERSONS_PANEL
    )
    most_per_person: int | None = option(None, shared.CAP_HELP, EXPERT)


def as_in_release(name: str, default: Any = None) -> Any:
    """Return an option with the text of a release's; its default, where none is given here."""
    item = ReleaseOptions.__dataclass_fields__[name]
    return field(default=item.default if default is None else default, metadata=item.metadata, repr=item.repr)
