"""``privmix attack membership``: how well attackers tell who was in the data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer
from rich.table import Table

from privmix.attacks.membership import (
    ATTACKS,
    DpSgdTrainer,
    MembershipConfig,
    MembershipResult,
    ReferenceTrainer,
    ReleaseTrainer,
    infer_membership,
)
from privmix.cli.app import err, out, plain, print_json
from privmix.cli.attack import attack
from privmix.cli.evaluate import source_for_model
from privmix.cli.options import (
    Classes,
    Colour,
    FeatureColumn,
    FeatureLength,
    FeaturesModel,
    ImageColumn,
    ImageSize,
    LabelColumn,
    NumberColumns,
    TextColumn,
    TrustFeaturesModel,
    check_writable,
)
from privmix.cli.progress import progress_bars
from privmix.cli.recording import Record, keep_record
from privmix.errors import WITHHELD, InvalidInput
from privmix.features import from_spec
from privmix.jobs.columns import Columns
from privmix.jobs.features import features_of_all
from privmix.learning import load_model
from privmix.learning.base import ReleaseLearner
from privmix.release.certificate import read_certificate
from privmix.release.verify import check_certificate
from privmix.training import TrainedModel, is_trained_model, load_trained
from privmix.training.verify import verify_trained

_ID = re.compile(r"[0-9a-f]{32}\Z")
STATEMENTS: Final = (
    "An attack that finds little proves little: others may find more. What bounds them all is the guarantee.",
    "Intervals are over records, for this one model; those of the ROC curve hold point by point.",
    "The bound is the most that any attack on one record can expect under the guarantee; a rate measured over the "
    "records of one model may lie above it by chance.",
    "Members and non-members are taken as records of one kind: whatever else tells them apart counts as membership.",
)
_OWN_ONLY: Final = "Computed from private records, without any guarantee: for the data's owner only."


@dataclass(frozen=True)
class _Target:
    """The attacked model, how its like are made, and what was guaranteed for it."""

    model: ReleaseLearner | TrainedModel
    subject: dict[str, Any]
    certificate: Mapping[str, Any] | None
    trainer: ReferenceTrainer | None

    @property
    def guarantee(self) -> Mapping[str, Any] | None:
        """The certificate, if what it guarantees limits attacks: noise from a seed limits none."""
        certificate = self.certificate
        return None if certificate is None or certificate["insecure_seed"] else certificate

    def check_count(self, members: int) -> None:
        """Raise unless the members are as many as the certificate says, where it states the real count."""
        certificate = self.certificate
        if certificate is None:
            return
        plan = certificate["plan"]
        declared = plan.get("records_declared") or certificate.get("records_declared")
        if not declared and plan.get("records_noise_multiplier") is None and members != plan["records"]:
            raise InvalidInput("--members", WITHHELD, f"the {plan['records']} records that the model was made of")


@attack.command()
def membership(
    model: Annotated[Path, typer.Argument(help="Folder that privmix fit or privmix train wrote.")],
    data: Annotated[str, typer.Option(help="Dataset with labels: file, folder, pattern or address.")],
    members: Annotated[str, typer.Option(help="Split that the model was made of.")] = "train",
    nonmembers: Annotated[str, typer.Option(help="Split of the same kind that it was not made of.")] = "test",
    attacks: Annotated[
        str, typer.Option("--attack", help=f"Which, with commas: {', '.join(ATTACKS)}. All but loss need references.")
    ] = "loss",
    references: Annotated[
        int, typer.Option(help="Reference models to make; each is a release and a fit, or a training run.")
    ] = 16,
    release: Annotated[
        Path | None, typer.Option(help="Release that the model was fitted on; references are made by its plan.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Private folder for finished references: the same command goes on with what is there."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of all intervals.")] = 0.95,
    highest: Annotated[int, typer.Option(help="Members at the highest risk to list, for the owner.")] = 10,
    public_data: Annotated[
        bool, typer.Option("--public-data", help="The data are public: single records are not listed.")
    ] = False,
    record: Record = None,
    classes: Classes = None,
    label_column: LabelColumn = "label",
    image_column: ImageColumn = "image",
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    image_size: ImageSize = None,
    colour: Colour = None,
    number_columns: NumberColumns = None,
    feature_length: FeatureLength = None,
    features_model: FeaturesModel = None,
    trust_features_model: TrustFeaturesModel = False,
    json_output: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Ask of each record whether the model was made of it, and measure how often that is right.

    loss: members have a lower loss (Yeom et al. 2018). lira, rmia: each record's confidence beside that of reference \
models, which are made from other draws of the same records, as the model was (Carlini et al. 2022; Zarifzadeh et al. \
2024). The figures are for the owner, unless the data are public.

    Example: privmix attack membership MODEL --data mnist --attack loss,lira,rmia --release REL
    """
    config = MembershipConfig(
        attacks=tuple(name.strip() for name in attacks.split(",")),
        references=references,
        confidence=confidence,
        highest=highest,
    )
    target = _target(model, release, config)
    for flag, place in (("--record", record), ("--work", work)):
        if place is not None:
            check_writable(flag, place)
    facts = target.model.facts_
    extractor = from_spec(facts.extractor, features_model, trust_model=trust_features_model)
    columns = Columns(
        label_column, image_column, feature_column, text_column, image_size, colour, number_columns, feature_length
    )
    if members == nonmembers:
        raise InvalidInput("--nonmembers", nonmembers, "another split than --members")
    sources = [source_for_model(facts, extractor, data, split, classes, columns) for split in (members, nonmembers)]
    with progress_bars() as progress:
        records = features_of_all(sources, extractor, progress)
        inside = sources[0].schema.records
        target.check_count(inside)
        found = infer_membership(
            target.model,
            records,
            np.arange(len(records.labels)) < inside,
            classes=len(facts.classes),
            config=config,
            trainer=target.trainer,
            certificate=target.guarantee,
            work=work,
            progress=progress,
        )
    content = found.to_dict(owner=not public_data)
    kept = keep_record(
        record,
        "membership",
        target.subject,
        content,
        private=not public_data,
        settings={**vars(config), "members": members, "nonmembers": nonmembers, "with_release": release is not None},
        title="Membership inference",
        statements=STATEMENTS if public_data else (*STATEMENTS, _OWN_ONLY),
    )
    if json_output:
        print_json({**content, "private": kept.private})
    else:
        _show(found, listed=not public_data)


def _target(folder: Path, release: Path | None, config: MembershipConfig) -> _Target:
    """The model and what it was made by.

    Raises:
        InvalidInput: the release is missing, superfluous or another one.
        StorageError: a folder can't be read.
    """
    if is_trained_model(folder):
        if release is not None:
            raise InvalidInput("--release", str(release), "none: the model was trained on records, not on a release")
        trained = load_trained(folder)
        verify_trained(folder)
        trainer = DpSgdTrainer.of(trained) if config.needs_references else None
        return _Target(trained, {"kind": "model", "id": trained.certificate["model_id"]}, trained.certificate, trainer)
    if release is not None and is_trained_model(release):
        raise InvalidInput("--release", str(release), "a release's folder, not a trained model's")
    learner = load_model(folder)
    made_of = learner.facts_.release_id
    subject = {"kind": "release", "id": made_of if _ID.match(made_of) else None}
    if release is None:
        if config.needs_references:
            asked = ", ".join(name for name in config.attacks if name != "loss")
            raise InvalidInput("--release", None, f"the release that the model was fitted on, for {asked}")
        return _Target(learner, subject, None, None)
    certificate = read_certificate(release)
    # Bounds are taken from it.
    check_certificate(certificate)
    return _Target(learner, subject, certificate, ReleaseTrainer.of(learner, certificate))


def _show(found: MembershipResult, *, listed: bool) -> None:
    level = f"{100 * found.confidence:g}%"
    out.print(
        f"accuracy on members {100 * found.train_accuracy:.2f}%, on non-members {100 * found.test_accuracy:.2f}%; "
        f"gap {100 * found.gap:.2f} points ({level}: {100 * found.gap_low:.2f} to {100 * found.gap_high:.2f})",
        soft_wrap=True,
    )
    table = Table(title=f"attacks ({level} intervals)", title_justify="left")
    table.add_column("attack")
    table.add_column("AUC")
    for point in found.attacks[0].tpr_at:
        table.add_column(f"found at {100 * point.fpr:g}% false alarms")
        if found.attacks[0].bounds is not None:
            table.add_column("bound")
    for attempt in found.attacks:
        cells = [f"{attempt.auc:.4f} ({attempt.auc_low:.4f} to {attempt.auc_high:.4f})"]
        for number, point in enumerate(attempt.tpr_at):
            cells.append(f"{100 * point.tpr:.2f}% ({100 * point.low:.2f} to {100 * point.high:.2f})")
            if attempt.bounds is not None:
                cells.append(f"{100 * attempt.bounds[0][number]:.3g}%")
        table.add_row(attempt.name, *cells)
    out.print(table)
    for sentence in STATEMENTS:
        err.print(sentence, soft_wrap=True)
    if listed and found.highest_risk:
        places = ", ".join(str(place) for place, _ in found.highest_risk)
        out.print(f"members at the highest risk (places in their split, from 0): {plain(places)}", soft_wrap=True)
        err.print(f"[yellow]private:[/] {_OWN_ONLY}", soft_wrap=True)
