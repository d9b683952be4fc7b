"""The certificate of a release: what of it no model has, and the words and facts that follow from its plan."""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from privmix.accounting.filters import ledger_statement
from privmix.certificate import certificate as common
from privmix.certificate.assessment import AssessedFacts, assess
from privmix.certificate.certificate import Certificate, delta_warning, issue
from privmix.certificate.guarantee import Guarantee
from privmix.certificate.notes import UNCHECKED, ReservationNote, SeriesLink, key_kept, key_warning, use
from privmix.certificate.sealed_key import Commitment
from privmix.data.overlap import PUBLISHED, PUBLISHED_OF_PERSONS
from privmix.designs.series.plan import SeriesPlan
from privmix.errors import InvalidInput, check_number
from privmix.features.base import refuse_ended
from privmix.features.spec import stated_names, statements_of
from privmix.fields import Amount, By, Whole, Words, stored, used
from privmix.mechanisms.plan import unit_of
from privmix.mechanisms.private_count import RECORD_COUNTS
from privmix.planning.choice import chosen_by_data
from privmix.plans.plan import Plan
from privmix.plans.registry import check_plan, made_by
from privmix.rounding import exact, percent_up, rounded_down

_PERSONS = (
    "Persons are the units: to sums a person adds the mean of what their records would add, and to a mixed row one of "
    "their records, drawn anew; what is said of a record holds for a person."
)


def release_facts(plan: Plan, insecure_seed: bool, in_ledger: str, *, chosen: bool, right: str | None) -> AssessedFacts:
    """Return facts of a release from its plan and the owner's statements; ``chosen``: the planner chose the design."""
    assert plan.epsilon is not None
    assert plan.delta is not None
    private_count = plan.records_noise_multiplier is not None
    declared = plan.records_declared and not knows_persons(plan)
    count: Literal["public", "declared", "private"] = "declared" if declared else "public"
    count = "private" if private_count else count
    centre = "" if plan.residual_clip_norm is None else f", and to {exact(plan.residual_clip_norm)} around the mean"
    settings = "privmix fixes design and settings before it reads a private record"
    settings += ", by a planner that saw what is public or was declared to be." if chosen else "."
    if private_count:
        settings += f" Those that depend on the number of {unit_of(plan).many} used its private estimate."
    if plan.person_quantile is not None:
        settings += " So did the number of records up to which a person weighs by them."
    return AssessedFacts(
        what="release",
        adjacency=plan.adjacency,
        epsilon=plan.epsilon,
        delta=plan.delta,
        records=plan.records,
        count=count,
        mechanism=_mechanism(plan),
        bias=[
            f"Features longer than {exact(plan.clip_norm)} ({plan.norm}) are scaled down to that{centre}: unusual "
            "records count less.",
            made_by(plan).lost if plan.num_classes > 1 else made_by(plan).lost.replace(" and labels", ""),
        ],
        digits="Sums are whole numbers on a public grid and the noise is rounded to it first, so the digits tell "
        "nothing of the order or size of the sums (Mironov 2012).",
        digits_left="The noise is drawn in float64 and its tails end near 12 standard deviations; the price takes it "
        "for exact.",
        settings=settings,
        in_ledger=in_ledger,
        insecure_seed=insecure_seed,
        unit=unit_of(plan),
        weighed=plan.weighed,
        most=plan.most_units,
        right=right,
    )


def knows_persons(plan: Plan) -> bool:
    """Whether the number of persons is the real one, declared or not: rows of a fixed size depend on it."""
    return plan.per_person is not None and made_by(plan).fixed_size


def _mechanism(plan: Plan) -> str:
    multiplier = rounded_down(plan.noise_multiplier, 4)
    text = made_by(plan).mechanism(plan, multiplier)
    if plan.centred:
        text += " Before that, the mean of all features, with noise of its own."
    if plan.records_noise_multiplier is not None:
        asked = f"the number of {unit_of(plan).many}"
        if plan.person_quantile is not None:
            asked = f"how many records persons have, and then {asked}"
        text += f" Before all, {asked}, with noise of its own."
    if plan.per_person is not None:
        text += f" {_PERSONS}"
    return text


PICTURE_FILE: Final = "predictions.svg"
_EXTRACTOR: Final = {"name", "version", "options", "decoder", "weights_sha256", "files_sha256"}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}\Z")
# Sizes beyond these belong to no input that fits a memory.
_MOST_AXES, _LARGEST_AXIS = 8, 2**31
_CURVE_SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)


def _check_extractor(name: str, spec: Any) -> None:
    """Raise for texts that could look like a part of the data card."""
    called = spec.get("name")
    if not isinstance(called, str) or not _NAME.match(called):
        raise InvalidInput(name, called, "a plain name")
    refuse_ended(called)
    if not set(spec) <= _EXTRACTOR:
        raise InvalidInput(name, "other fields", ", ".join(sorted(_EXTRACTOR)))


def _check_curve(name: str, points: Any) -> None:
    """Raise unless some mechanism could have the curve: deltas up to 1 that do not rise with epsilon."""
    pairs = []
    for point in points:
        if not isinstance(point, list) or len(point) != 2:
            raise InvalidInput(name, point, "pairs of epsilon and delta")
        at = check_number(name, point[0], low=0)
        # Negated, so that points of equal epsilon sort by falling delta.
        pairs.append((at, -check_number(name, point[1], low=0, high=1)))
    # By epsilon: rounding may swap neighbours where epsilon is next to nothing.
    deltas = [delta for _, delta in sorted(pairs)]
    if deltas != sorted(deltas):
        raise InvalidInput(name, "deltas that rise with epsilon", "deltas that do not rise")


@dataclass(frozen=True, kw_only=True)
class ReleaseFields(common.CommonFields):
    """Certificate fields of releases alone."""

    # choice None: no planner chose; replay None: the key was destroyed; series None: the release stands alone.

    of: ClassVar[str] = common.RELEASE
    # A list of names, not of paths: no entry leads out of the folder.
    file_names: ClassVar[re.Pattern[str]] = re.compile(
        r"data/train-\d{5,9}-of-\d{5,9}\.parquet|[a-z][a-z-]{0,63}\.safetensors|predictions\.svg|LICENSE\.txt|rows\.csv"
    )

    epsilon_delta_curve: Annotated[list[Any], By(_check_curve, [[1.0]], [[0.0, 0.1], [1.0, 0.2]], [[0.0, "1"]])]
    noise_std: dict[str, Amount]
    extractor: Annotated[dict[str, Any], By(_check_extractor, {}, {"name": "A"}, {"name": "a", "more": 1})]
    input_shape: tuple[Annotated[int, Whole(1, _LARGEST_AXIS)], ...]
    choice: dict[str, Any] | None
    feature_names: tuple[Words, ...] = used(())
    replay: Commitment | None = used(None)
    series: SeriesLink | None = used(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.input_shape) > _MOST_AXES:
            raise InvalidInput("input_shape", len(self.input_shape), f"at most {_MOST_AXES} sizes")


def make_certificate(
    plan: Plan,
    *,
    extractor: Mapping[str, Any],
    input_shape: Sequence[int],
    insecure_seed: bool,
    files: Sequence[Mapping[str, Any]],
    reservation: ReservationNote | None = None,
    choice: Mapping[str, Any] | None = None,
    release_id: str | None = None,
    about: Mapping[str, Any] | None = None,
    replay: Commitment | None = None,
    series: SeriesLink | None = None,
) -> Certificate:
    """Assemble the certificate of a finished release from public facts only."""
    # choice: of Choice.to_dict; about: of About.to_dict; replay: for whom the run's key was sealed (None: destroyed);
    # release_id (None for a fresh one).
    cost = check_plan(plan)
    assert plan.epsilon is not None
    if plan.records_noise_multiplier is not None:
        # Other answers of the count would have led to plans of other prices: the budget holds for all of them.
        cost = replace(cost, epsilon=plan.epsilon)
    name, right = release_id or uuid.uuid4().hex, percent_up(Guarantee.of_plan(plan).right)
    # All releases of a series are paid for by one charge.
    in_ledger = use(reservation, plan, name if series is None else series.id)
    return issue(
        ReleaseFields,
        plan,
        cost,
        name=name,
        own={
            "epsilon_delta_curve": curve_of(plan, cost.epsilon, cost.delta),
            "noise_std": plan.noise_std,
            "extractor": dict(extractor),
            "input_shape": [int(size) for size in input_shape],
            # Absent where there are none: certificates of earlier versions keep their bytes.
            **({"feature_names": list(names)} if (names := stated_names(extractor, plan.dim)) else {}),
            "choice": None if choice is None else dict(choice),
            **({} if replay is None else {"replay": stored(replay)}),
            **({} if series is None else {"series": stored(series)}),
        },
        said=public_text(plan, insecure_seed, in_ledger, extractor, choice, replay, series, right=right),
        files=files,
        insecure_seed=insecure_seed,
        in_ledger=in_ledger,
        about=about,
    )


def read_certificate(folder: str | Path) -> Certificate:
    """Read a release's certificate and check its structure, version and hash."""
    return common.read_certificate(folder, ReleaseFields)


def parse_certificate(content: bytes) -> Certificate:
    """As :func:`read_certificate`, of a file's bytes. How they are laid out is not looked at."""
    return common.parse_certificate(content, ReleaseFields)


def names_in_schema(features: Sequence[str], classes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Entries of the schema of shards other than widths, as keys and texts; nothing where features have no names."""
    named = {"feature_names": features, "class_names": classes} if features else {}
    return tuple((key, json.dumps(list(names), ensure_ascii=False)) for key, names in named.items())


def told_in_shards(certificate: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """As :func:`names_in_schema`, of a certificate; nothing where it is of an earlier version."""
    return names_in_schema(certificate.get("feature_names", ()), certificate["plan"]["classes"])


def curve_of(plan: Plan, at: float, delta: float) -> list[list[float]]:
    """Return the certificate's curve: deltas at shares and multiples of the epsilon ``at``."""
    # Not rounded at the stated epsilon: this point is the guarantee itself.
    epsilons = [round(at * share, 6) if share != 1 else at for share in _CURVE_SHARES]
    return [[one, other] for one, other in zip(epsilons, plan.curve(epsilons, (at, delta)), strict=True)]


def public_text(
    plan: Plan,
    insecure_seed: bool,
    in_ledger: str,
    extractor: Mapping[str, Any],
    choice: Mapping[str, Any] | None,
    replay: Commitment | None = None,
    series: SeriesLink | None = None,
    *,
    before: bool = False,
    right: str | None = None,
) -> dict[str, Any]:
    """Return the certificate's warnings, statements and assessment, from its other fields."""
    # before: as written before statements covered the comparison of public data and a series' unchecked records.
    statements = _statements(plan, in_ledger, extractor)
    if not before and chosen_by_data(choice):
        statements.append(PUBLISHED if plan.per_person is None else PUBLISHED_OF_PERSONS)
    seeded = "insecure_seed: the noise can be re-created by anyone who guesses the seed. Not for real data."
    warnings = [*([seeded] if insecure_seed else []), *delta_warning(plan)]
    if replay is not None:
        warnings.append(replay.warning)
        statements.append(replay.statement)
    facts = release_facts(plan, insecure_seed, in_ledger, chosen=choice is not None, right=right)
    if replay is not None:
        facts = replace(facts, key_with=replay.whom)
    if series is not None:
        step, steps = step_of(plan)
        if in_ledger == "none" and not before:
            warnings.append(UNCHECKED)
        warnings.append(key_warning(step, steps))
        facts = replace(facts, key_kept=key_kept(step, steps))
    return {"warnings": warnings, "statements": statements, "assessment": assess(facts)}


def step_of(plan: Plan) -> tuple[int, int]:
    """Which step of how many a plan of a series is."""
    if not isinstance(plan, SeriesPlan):
        raise InvalidInput("certificate series", "a series", f"none of design {plan.design}")
    return plan.step, plan.steps


def _statements(plan: Plan, in_ledger: str, extractor: Mapping[str, Any]) -> list[str]:
    unit = unit_of(plan)
    relation = {
        "add_remove": f"adding or removing {unit.changed}",
        "replace_one": f"replacing {unit.changed} by another",
    }[plan.adjacency.value]
    known = "The class list, shapes" if plan.num_classes > 1 else "Shapes"
    return [
        f"The guarantee is for {relation}. {unit.others}",
        _count_statement(plan),
        f"{known}, clipping bounds, rates, degree and number of rows are public constants.",
        *statements_of(extractor),
        *made_by(plan).stated(plan),
        ledger_statement(
            in_ledger, "releases", "No budget ledger was used: earlier releases of the same data are not counted here."
        ),
        "Whatever is computed from the released files alone costs no further privacy.",
    ]


def _count_statement(plan: Plan) -> str:
    unit = unit_of(plan)
    if plan.records_noise_multiplier is not None:
        said = (
            "is a differentially private estimate, on the low side; its cost is part of this guarantee (added to that "
            "of the rest) and the real count is protected."
        )
        if not plan.weighed and plan.person_quantile is None:
            return f"The {unit.one} count {plan.records} {said}"
        weight = (
            f"All persons together weigh {plan.records}, where one with fewer than {plan.per_person} records counts in "
            f"proportion to them; that {said}"
        )
        if plan.person_quantile is not None:
            weight += (
                f" {plan.per_person} was estimated within the same cost, on the low side and at most "
                f"{RECORD_COUNTS[-1]:,}, as what {exact(plan.person_quantile)} of the persons do not pass."
            )
        return weight
    if plan.records_declared and not knows_persons(plan):
        return f"{plan.records} is a public figure that the owner declared; the real {unit.one} count is not used."
    return f"The {unit.one} count {plan.records} is taken as public; it is not protected by this guarantee."
