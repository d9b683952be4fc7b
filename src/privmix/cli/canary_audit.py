"""``privmix audit TARGET --data DIR --canaries N``: the plan once more, on the owner's data with canaries in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from privmix.accounting import Adjacency, Event
from privmix.attacks.canaries import CanaryAudit, CanaryConfig, audit_release, check_auditable
from privmix.attacks.training_canaries import audit_training_canaries, check_auditable_training, check_room
from privmix.cli.app import err, out, plain, print_json
from privmix.cli.options import check_writable
from privmix.cli.progress import progress_bars
from privmix.cli.recording import keep_record
from privmix.data import FeatureStore, Source
from privmix.errors import WITHHELD, InvalidInput, StorageError, check_integer
from privmix.features import Extractor, from_spec
from privmix.jobs.budget import Charge, charge
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import Dataset, open_for
from privmix.jobs.features import features_in_memory, features_on_disk
from privmix.mechanisms.streams import SecretStreams
from privmix.release import PrivateRecords, plan_from_dict, verify_release
from privmix.release.certificate import read_certificate
from privmix.release.engine import Progress
from privmix.rounding import exact, rounded_down, rounded_up
from privmix.training import (
    ModelFacts,
    OptimiserConfig,
    TrainingConfig,
    TrainingRecords,
    ViewConfig,
    is_trained_model,
    load_trained,
)
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.verify import plan_of, verify_trained

_HIGHEST_SEED: Final = 2**64 - 1
_PANEL: Final = "Canaries in the owner's data"

Data = Annotated[
    str | None,
    typer.Option("--data", help="With --canaries: the records that TARGET was made of.", rich_help_panel=_PANEL),
]
Canaries = Annotated[
    int | None,
    typer.Option("--canaries", help="Insert so many by coins, and run TARGET's plan once.", rich_help_panel=_PANEL),
]
Kind = Annotated[
    str,
    typer.Option(
        "--canary-kind",
        help="planted: what reveals most (models: gradients, seen step by step); mislabelled records; blank ones "
        "(models).",
        rich_help_panel=_PANEL,
    ),
]
Evidence = Annotated[
    str,
    typer.Option(
        help="rows (or steps); neighbours, tiles: differences, which show noise used twice.", rich_help_panel=_PANEL
    ),
]
Guesses = Annotated[
    int | None,
    typer.Option(help="Coins to guess. Default: what proves most if the claim holds.", rich_help_panel=_PANEL),
]
Split = Annotated[str, typer.Option(help="Which part of the dataset.", rich_help_panel=_PANEL)]
LabelColumn = Annotated[str, typer.Option(help="The labels' column.", rich_help_panel=_PANEL)]
ImageColumn = Annotated[str, typer.Option(help="The column of encoded images.", rich_help_panel=_PANEL)]
FeatureColumn = Annotated[str | None, typer.Option(help="The column of number lists.", rich_help_panel=_PANEL)]
TextColumn = Annotated[str | None, typer.Option(help="The texts' column.", rich_help_panel=_PANEL)]
ImageSize = Annotated[
    int | None,
    typer.Option(help="Side that images are scaled to. Default: TARGET's.", rich_help_panel=_PANEL),
]
Colour = Annotated[
    str | None, typer.Option(help="grey or rgb, for images. Default: as TARGET's.", rich_help_panel=_PANEL)
]
NumberColumns = Annotated[
    str | None, typer.Option("--columns", help="Columns of numbers, with commas.", rich_help_panel=_PANEL)
]
FeatureLength = Annotated[
    int | None, typer.Option(help="How many numbers each list has. Default: TARGET's.", rich_help_panel=_PANEL)
]
FeaturesModel = Annotated[
    Path | None,
    typer.Option(
        help="Your copy of the extractor's model, where it is a file or folder: none is opened unless you name it.",
        rich_help_panel=_PANEL,
    ),
]
TrustFeaturesModel = Annotated[
    bool,
    typer.Option(
        "--trust-features-model",
        help="The file of --features-model is a program (TorchScript, .pt2): let it run.",
        rich_help_panel=_PANEL,
    ),
]
Store = Annotated[
    Path | None, typer.Option(help="Keep extracted features here (private!) and reuse them.", rich_help_panel=_PANEL)
]
LedgerUrl = Annotated[
    str | None,
    typer.Option("--ledger", help="Charge the run to this ledger before reading.", rich_help_panel=_PANEL),
]
LedgerName = Annotated[
    str | None, typer.Option("--dataset", help="With --ledger: the dataset's name there.", rich_help_panel=_PANEL)
]
PublicData = Annotated[
    bool, typer.Option("--public-data", help="The records are public, so the figures are too.", rich_help_panel=_PANEL)
]


@dataclass(frozen=True)
class CanaryOrder:
    """What is audited, on which records, how, and who pays."""

    target: Path | None
    data: str | None
    canaries: int | None
    confidence: float
    kind: str
    evidence: str
    guesses: int | None
    split: str
    columns: Columns
    features_model: Path | None
    trust_features_model: bool
    store: Path | None
    ledger: str | None
    dataset: str | None
    public_data: bool
    seed: int | None

    @property
    def wanted(self) -> bool:
        """Whether the owner's data is to be read at all."""
        return self.data is not None or self.canaries is not None

    def config(self) -> CanaryConfig:
        """Settings of the audit; raises where they don't go together. Reads no data."""
        if self.target is None or self.data is None or self.canaries is None:
            given = (self.target and str(self.target), self.data, self.canaries)
            raise InvalidInput("TARGET, --data, --canaries", given, "all three of them")
        if (self.ledger is None) != (self.dataset is None):
            raise InvalidInput("--ledger, --dataset", (self.ledger, self.dataset), "both or none of them")
        if self.ledger is not None and self.seed is not None:
            raise InvalidInput("--seed", self.seed, "none with --ledger: what anyone can re-create has no price")
        if self.seed is not None:
            check_integer("--seed", self.seed, low=0, high=_HIGHEST_SEED)
        if self.store is not None:
            check_writable("--store", self.store)
        return CanaryConfig(self.canaries, self.confidence, self.guesses, self.kind, self.evidence)

    def extractor(self, spec: Mapping[str, Any]) -> Extractor:
        """TARGET's extractor, with the user's own copy of its model where it has one."""
        return from_spec(spec, self.features_model, trust_model=self.trust_features_model)

    def streams(self) -> SecretStreams:
        """Of the run that is audited."""
        return SecretStreams.from_entropy() if self.seed is None else SecretStreams.from_seed(self.seed)


@dataclass(frozen=True)
class _Found:
    """An audit and what it is of."""

    audit: CanaryAudit
    subject: dict[str, Any]
    plan: dict[str, Any]


def audit_with_canaries(order: CanaryOrder, record: Path | None, json_output: bool) -> None:
    """Check, charge, read, run, and say what was proven.

    Formal guarantees:
        * Paid first: with a ledger, no private row is read before the run's cost is charged.
        * Nothing is kept: of the run, the figures alone are shown and recorded, and marked private.
    """
    config = order.config()
    assert order.target is not None
    run = _audit_model if is_trained_model(order.target) else _audit_release
    found = run(order, config, quiet=json_output)
    _report(order, config, found, record, json_output)


def _audit_release(order: CanaryOrder, config: CanaryConfig, *, quiet: bool) -> _Found:
    assert order.target is not None
    checked = verify_release(order.target)
    certificate = read_certificate(order.target)
    plan = check_auditable(plan_from_dict(certificate["plan"]), config)
    extractor = order.extractor(certificate["extractor"])
    source = _open(order, extractor, tuple(certificate["input_shape"]), plan.classes)
    declared = certificate["records_declared"] or plan.records_noise_multiplier is not None
    _check_count(source, plan.records, declared)
    charged = _charge(order, source, plan.event_after_count, plan.adjacency)
    with progress_bars(quiet=quiet, percent=declared) as progress:
        audit = audit_release(
            plan,
            _features(order, source, extractor, progress),
            config,
            delta=checked.delta,
            streams=order.streams(),
            generator=np.random.default_rng(order.seed),
            progress=progress,
        )
    _note_done(charged)
    return _Found(
        _claimed(audit, checked.epsilon), {"kind": "release", "id": checked.release_id}, dict(certificate["plan"])
    )


def _audit_model(order: CanaryOrder, config: CanaryConfig, *, quiet: bool) -> _Found:
    assert order.target is not None
    checked = verify_trained(order.target)
    model = load_trained(order.target)
    plan, facts = plan_of(model.certificate), model.facts_
    training = training_config(model.certificate)
    check_auditable_training(training, config)
    check_room(config, weights=FlatParameters(model.network).size, records=plan.records)
    extractor = order.extractor(facts.extractor)
    source = _open(order, extractor, facts.input_shape, facts.classes)
    _check_count(source, plan.records, plan.records_declared)
    charged = _charge(order, source, plan.event(), plan.adjacency)
    with progress_bars(quiet=quiet, percent=plan.records_declared) as progress:
        audit = audit_training_canaries(
            training,
            ModelFacts(facts.classes, facts.extractor, tuple(facts.input_shape), facts.dim),
            _training_records(_features(order, source, extractor, progress), len(facts.classes)),
            config,
            plan=plan,
            streams=order.streams(),
            generator=np.random.default_rng(order.seed),
            progress=progress,
        )
    _note_done(charged)
    return _Found(_claimed(audit, checked.epsilon), {"kind": "model", "id": checked.model_id}, plan.to_dict())


def training_config(certificate: Mapping[str, Any]) -> TrainingConfig:
    """The settings of a trained model, from its certificate.

    Raises:
        InvalidInput: views, a bank or public data took part, which a certificate does not hold.
    """
    settings = certificate["settings"]
    if settings.get("views") != ViewConfig.plain().fingerprint() or settings.get("bank_views"):
        raise InvalidInput("TARGET", "a model trained on views", "one trained on the records themselves")
    if settings.get("scenario") != "cold" or certificate["public_data"]:
        raise InvalidInput("TARGET", "a model trained with public data", "one trained on private records alone")
    plain = ("epsilon", "delta", "model", "batch_size", "epochs", "clip_norm", "clipping", "feature_norm", "model_seed")
    try:
        return TrainingConfig(
            **{name: settings[name] for name in (*plain, "microbatch_size", "microbatch_mixes")},
            adjacency=Adjacency(settings["adjacency"]),
            optimiser=OptimiserConfig(**settings["optimiser"]),
        )
    except (KeyError, TypeError, ValueError):
        raise InvalidInput("TARGET", "other settings", "a model that this version of privmix trained") from None


def _open(order: CanaryOrder, extractor: Extractor, shape: tuple[int, ...], classes: tuple[str, ...]) -> Source:
    """Open the dataset, which must be one that TARGET could have been made of."""
    assert order.data is not None
    source = open_for(extractor, order.data, order.split, list(classes), order.columns, tuple(shape))
    if tuple(source.schema.input_shape) != tuple(shape):
        raise InvalidInput("--data", source.schema.input_shape, f"inputs of shape {tuple(shape)}, as TARGET's")
    if tuple(source.schema.classes) != tuple(classes):
        raise InvalidInput("--data", list(source.schema.classes), f"TARGET's classes: {', '.join(classes)}")
    return source


def _check_count(source: Source, records: int, declared: bool) -> None:
    if not declared and source.schema.records != records:
        raise InvalidInput("--data", WITHHELD, f"TARGET's {records} records: its own data and split")


def _charge(order: CanaryOrder, source: Source, event: Event, adjacency: Adjacency) -> Charge:
    return charge(order.ledger, order.dataset, event, adjacency, "canary audit", _opened(order, source))


def _opened(order: CanaryOrder, source: Source) -> Dataset:
    assert order.data is not None
    return Dataset(source, order.data, order.split, order.columns)


def _note_done(charged: Charge) -> None:
    """The budget is spent whatever happens here, so that trouble with the ledger must not cost the figures."""
    try:
        charged.done("canary audit")
    except StorageError as error:
        err.print(f"[yellow]warning:[/] charged, but not noted as done: {plain(error)}", soft_wrap=True)


def _features(
    order: CanaryOrder, source: Source, extractor: Extractor, progress: Progress
) -> PrivateRecords | FeatureStore:
    if order.store is None:
        return features_in_memory(source, extractor, progress)
    return features_on_disk(_opened(order, source), extractor, order.store, progress)


def _training_records(found: PrivateRecords | FeatureStore, classes: int) -> TrainingRecords:
    return TrainingRecords.of(found.features, found.labels, classes=classes)


def _claimed(audit: CanaryAudit, epsilon: float) -> CanaryAudit:
    """The certificate's figure, which may be higher than the price, is what the audit stands beside."""
    return replace(audit, proof=replace(audit.proof, claimed_epsilon=epsilon))


def _statements(order: CanaryOrder) -> list[str]:
    found = [
        "The plan was run once more, on the data with canaries; a proof is about the mechanism and its implementation. "
        "A low one does not show that less is revealed."
    ]
    if order.public_data:
        return found
    found.append("These figures were computed from private records and nothing protects them: they are for the owner.")
    if order.ledger is None:
        found.append("The run's cost was charged to no ledger: nothing of it but these figures was kept.")
    return found


def _report(order: CanaryOrder, config: CanaryConfig, found: _Found, record: Path | None, json_output: bool) -> None:
    content, proof, statements = found.audit.to_dict(), found.audit.proof, _statements(order)
    settings = {"plan": found.plan, "kind": config.kind, "evidence": config.evidence, "split": order.split}
    keep_record(
        record,
        "canary-audit",
        found.subject,
        content,
        private=not order.public_data,
        settings={**settings, "seed": order.seed},
        title=f"One-run audit with {config.canaries:,} canaries",
        statements=statements,
    )
    if json_output:
        print_json(content)
    else:
        claimed = "nothing" if math.isinf(proof.claimed_epsilon) else f"epsilon {rounded_up(proof.claimed_epsilon, 4)}"
        verdict = "[bold red]refuted[/]" if proof.violated else "[green]not refuted[/]"
        out.print(f"claim: {claimed} at delta {exact(proof.delta)}: {verdict} at confidence {proof.confidence:g}")
        out.print(
            f"guessed {proof.run.correct} of {proof.run.guesses} coins right, of {proof.run.canaries} canaries "
            f"({found.audit.method})",
            soft_wrap=True,
        )
        out.print(
            f"proven: epsilon is at least {rounded_down(proof.proven_epsilon, 4)} "
            f"(Steinke et al. {rounded_down(proof.steinke, 4)}, "
            f"Mahloujifar et al. {rounded_down(proof.mahloujifar, 4)}); "
            f"so many perfect guesses would prove {rounded_up(proof.provable_epsilon, 4)}",
            soft_wrap=True,
        )
    for text in statements:
        err.print(text, soft_wrap=True)
