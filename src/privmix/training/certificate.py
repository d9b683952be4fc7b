"""The certificate and the card of a trained model: what of it no release has, and words that follow from its plan."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from privmix.accounting.events import Adjacency
from privmix.accounting.filters import ledger_statement
from privmix.certificate import certificate as common
from privmix.certificate.about import privacy_metadata
from privmix.certificate.assessment import SOURCE, AssessedFacts, assess, markdown
from privmix.certificate.certificate import Certificate, delta_warning, issue
from privmix.certificate.guarantee import Guarantee
from privmix.certificate.notes import ReservationNote, use
from privmix.data.overlap import PUBLISHED, PUBLISHED_OF_PERSONS
from privmix.errors import InvalidInput
from privmix.features.spec import drafted_statements, title_of
from privmix.fields import Digest
from privmix.mechanisms.plan import check_price, unit_of
from privmix.rounding import exact, percent_up, rounded_up
from privmix.training.config import OWN
from privmix.training.mechanisms.base import mechanism_of, plan_types
from privmix.training.plan import TrainingPlan

WEIGHTS_FILE: Final = "weights.safetensors"
PUBLIC_DATA: Final = ("public", "synthetic", "pool")
"""Kinds of public data, by their names in settings."""
CARD_FILE: Final = "MODEL_CARD.md"
"""In the model's folder. Verification compares its text: a change needs editions, as :mod:`privmix.releases.card`."""
_OWN: Final = "a network of its maker's own, whose code is not here: its weights need the module"


@dataclass(frozen=True, kw_only=True)
class ModelFields(common.CommonFields):
    """Fields of trained models' certificates in addition to the common ones: settings, digests of public data."""

    of: ClassVar[str] = common.MODEL
    file_names: ClassVar[re.Pattern[str]] = re.compile(re.escape(WEIGHTS_FILE))

    settings: dict[str, Any]
    public_data: dict[str, Digest]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.files) != 1:
            raise InvalidInput("files", len(self.files), f"one, {WEIGHTS_FILE}")
        if not set(self.public_data) <= set(PUBLIC_DATA):
            raise InvalidInput("public_data", "others", f"digests of {', '.join(PUBLIC_DATA)}")


def training_certificate(
    plan: TrainingPlan,
    *,
    model_id: str,
    settings: Mapping[str, Any],
    weights_sha256: str,
    insecure_seed: bool,
    reservation: ReservationNote | None,
    public_data: Mapping[str, Any],
) -> Certificate:
    """Assemble the certificate from public facts; raise where the plan costs more than its target."""
    in_ledger, cost = use(reservation, plan, model_id), check_price(plan, plan_types())
    if plan.records_noise_multiplier is not None and plan.epsilon is not None:
        # Other answers of the count would have led to plans of other prices: the budget holds for all of them.
        cost = replace(cost, epsilon=plan.epsilon)
    return issue(
        ModelFields,
        plan,
        cost,
        name=model_id,
        own={"settings": dict(settings), "public_data": dict(public_data)},
        said=public_text(
            plan,
            public_data,
            insecure_seed,
            in_ledger,
            extractor=settings.get("extractor"),
            right=percent_up(Guarantee.of_plan(plan).right),
        ),
        files=[{"file": WEIGHTS_FILE, "rows": 0, "sha256": weights_sha256}],
        insecure_seed=insecure_seed,
        in_ledger=in_ledger,
    )


def public_text(
    plan: TrainingPlan,
    public_data: Mapping[str, Any],
    insecure_seed: bool,
    in_ledger: str,
    *,
    extractor: Any = None,
    before: bool = False,
    right: str | None = None,
) -> dict[str, Any]:
    # before: the wording from before statements named the comparison of public data.
    drafted = drafted_statements(extractor)
    statements = _statements(plan, public_data, insecure_seed, in_ledger, before, not drafted)
    seeded = (
        "insecure_seed: the noise came from a seed, so whoever guesses it can subtract it. There is no privacy here."
    )
    # If no record is read, no delta shows one.
    warnings = [*([seeded] if insecure_seed else []), *(delta_warning(plan) if plan.steps else [])]
    return {
        "warnings": warnings,
        "statements": [*statements, *drafted],
        "assessment": assess(_facts(plan, public_data, insecure_seed, in_ledger, right)),
    }


def read_certificate(folder: str | Path) -> Certificate:
    """Read a trained model's certificate and check its structure, version and hash."""
    return common.read_certificate(folder, ModelFields)


def _statements(
    plan: TrainingPlan, public_data: Mapping[str, Any], insecure_seed: bool, in_ledger: str, before: bool, unseen: bool
) -> list[str]:
    match plan.adjacency:
        case Adjacency.ADD_REMOVE:
            relation = f"{unit_of(plan).changed} present or absent"
        case Adjacency.REPLACE_ONE:
            relation = f"the content of {unit_of(plan).changed}"
    count = statements_of_count(plan)
    averaged = {None: "its views", 1: "the views of one of their records"}.get(
        plan.per_person, f"up to {plan.per_person} of their records and the views of these"
    )
    unit = (
        f"each {unit_of(plan).one}'s gradient, averaged over {averaged}, is clipped once"
        if plan.microbatch_size == 1
        else f"gradients of groups of about {plan.microbatch_size} records are clipped: one record moves one by twice C"
    )
    if plan.steps == 0:
        return _statements_without_steps(count, public_data, before, unseen)
    words = mechanism_of(plan).said(plan, unit)
    verb = "Not guaranteed, as the noise came from a seed, but meant" if insecure_seed else "Guaranteed"
    found = [
        f"{verb}: all weights of all steps together tell little about {relation}. {unit_of(plan).others}",
        f"{words.batches}; {unit}; {words.noise}; sums are divided by a public number.",
        count,
        "Sums and noise are rounded to one public grid and added as integers: no floating-point digits of a sum show.",
        "Noise and batches come from a cryptographic generator: the guarantee is against bounded computing power.",
        ledger_statement(
            in_ledger, "uses", "No budget ledger was used: other uses of the same records are not counted here."
        ),
        _made_without(unseen),
        "Not covered: how long steps took, and whatever else is seen of the machine, its memory or its disk.",
        "Not covered: hyper-parameters tuned on the same private records, in other runs, cost privacy of their own.",
        "Not covered: what evaluation on private records shows.",
    ]
    if public_data:
        found.append(f"Taken as public, without any protection: {', '.join(sorted(public_data))}.")
        found += [] if before else [PUBLISHED if plan.per_person is None else PUBLISHED_OF_PERSONS]
    return found


def _made_without(unseen: bool) -> str:
    """``unseen``: the extractor, too."""
    what = "The class list, the feature extractor and" if unseen else "The class list and"
    return f"{what} the initial weights, pretrained ones too, are taken as made without the private records."


def statements_of_count(plan: TrainingPlan) -> str:
    """Describe the plan's record count, and whether the guarantee hides the real one, in a sentence or two."""
    many = unit_of(plan).many
    if plan.records_noise_multiplier is not None:
        return (
            f"The number of {many}, {plan.records}, is a differentially private estimate, on the low side; its cost is "
            "part of this guarantee (added to that of the steps) and the real count is protected."
        )
    if not plan.records_declared:
        return f"The number of {many}, {plan.records}, is taken as public: the guarantee does not hide it."
    hidden = "" if plan.adjacency is Adjacency.ADD_REMOVE else " This adjacency does not hide it."
    declared = f"The number of {many} is declared as {plan.records}"
    return f"{declared}; the real count was not used for sampling rates.{hidden}"


def _statements_without_steps(count: str, public_data: Mapping[str, Any], before: bool, unseen: bool) -> list[str]:
    guaranteed = (
        "Guaranteed: no private record was read. All weights are made of what is taken as public, of settings and of a "
        "public seed, so that epsilon is 0, at any delta."
    )
    among = "the guarantee is about records that are not among these."
    if before:
        compared, public = "", f"This was not compared with the private records, since none was read: {among}"
    else:
        compared = (
            " What is taken as public was not compared with private records: that none of these is among it is the "
            "owner's word."
        )
        public = among[0].upper() + among[1:]
    return [
        guaranteed + compared,
        count,
        f"Taken as public, without any protection: {', '.join(sorted(public_data))}. {public}",
        _made_without(unseen),
        "Not covered: settings and public data that were chosen by results on the private records.",
        "Not covered: what evaluation on private records shows.",
    ]


def _facts(
    plan: TrainingPlan, public_data: Mapping[str, Any], insecure_seed: bool, in_ledger: str, right: str | None
) -> AssessedFacts:
    assert plan.epsilon is not None
    counted, many = plan.records_noise_multiplier is not None, unit_of(plan).many
    unit = f"each {unit_of(plan).one}'s gradient" if plan.microbatch_size == 1 else "each microbatch's gradient"
    shared: dict[str, Any] = {
        "what": "model",
        "adjacency": plan.adjacency,
        "records": plan.records,
        "count": "private" if counted else "declared" if plan.records_declared else "public",
        "in_ledger": in_ledger,
        "insecure_seed": insecure_seed,
        "public_data": sorted(public_data),
        "right": right,
    }
    if plan.steps == 0:
        return AssessedFacts(
            **shared,
            epsilon=0.0,
            delta=0.0,
            mechanism="None: no private record was read. The model was trained on public data alone.",
            bias=["It fits the private records as far as the public ones are like them."],
            digits="Nothing of a private record is in any digit.",
            digits_left="",
            settings="privmix fixes the plan before it would read a private record.",
            reads_records=False,
        )
    before = f" Before all, the number of {many}, with noise of its own." if counted else ""
    return AssessedFacts(
        **shared,
        epsilon=plan.epsilon,
        delta=plan.delta,
        mechanism=mechanism_of(plan).said(plan, unit).mechanism + before,
        bias=["Long gradients are scaled down, which favours records that are like many others."],
        digits="Sums and noise are whole numbers on one public grid: the digits of a sum do not show.",
        digits_left="The noise is drawn in float64 and its tails end near 12 standard deviations; the price takes it "
        "for exact.",
        settings=f"privmix fixes the plan by a private estimate of the number of {many} and by what is public."
        if counted
        else "privmix fixes the plan before it reads a private record.",
        unit=unit_of(plan),
        most=plan.most_units,
    )


def model_card(certificate: Certificate) -> str:
    """Return the card in Markdown, with the front matter that model hubs read."""
    guarantee, settings = certificate["guarantee"], certificate["settings"]
    warnings = "".join(f"\n> **Warning.** {text}\n" for text in certificate.warnings)
    statements = "\n".join(f"- {text}" for text in certificate["statements"])
    classes = ", ".join(f"`{name}`" for name in settings["classes"])
    network = settings["network"]["architecture"]
    use = "privmix predict MODEL --data YOUR_RECORDS --out predictions.csv\nprivmix export MODEL --out net.pt2"
    if network == OWN:
        use = (
            "privmix predict MODEL --module torch:FILE.py:NAME --data YOUR_RECORDS --out predictions.csv\n"
            "privmix export MODEL --module torch:FILE.py:NAME --out net.pt2"
        )
    epsilon = rounded_up(certificate.epsilon, 4)
    return f"""---
library_name: privmix
tags:
- differential-privacy
- dp-sgd
{privacy_metadata(guarantee, certificate.unit)}---
# A model trained with differential privacy
{warnings}
**Guarantee: ({epsilon}, {exact(guarantee["delta"])})-differential privacy, adjacency {certificate.relation},
accountant `{guarantee["accountant"]}`.** `certificate.json` has every public constant and the accounting event;
`privmix verify` recomputes them.

{statements}

## What holds, what does not, what is unknown

The questions are those of {SOURCE}.

{markdown(certificate["assessment"])}

## What it is

Network: {_OWN if network == OWN else f"`{network}`"}. It takes {title_of(settings["extractor"])} features of inputs of
shape {" x ".join(map(str, settings["input_shape"]))}. Classes in order: {classes}.

## How to use it

```sh
privmix verify MODEL
{use}
```

The exported file loads without
privmix: `torch.export.load("net.pt2").module()`.
"""
