"""Asking the planner: which design is expected to serve best, by public data or a declared spectrum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privmix.data.overlap import InputHashes, Sketch
from privmix.engine.rows import PrivateRecords
from privmix.errors import InvalidInput, check_choice, in_terms_of
from privmix.features.base import Extractor
from privmix.features.projected import Projected
from privmix.features.table_states import States, table_states
from privmix.features.tabular import Tabular
from privmix.jobs.columns import Columns
from privmix.jobs.dataset import open_dataset
from privmix.jobs.features import features_in_memory
from privmix.jobs.options import AUTO, GOALS, TABLE
from privmix.jobs.public_data import origins_of
from privmix.jobs.release_options import Assumptions
from privmix.learning.data_model import DataModel
from privmix.learning.holdings import ONE_EACH, Holdings
from privmix.named import chosen
from privmix.planning.choice import DECLARED, PUBLIC, PlannerChoice
from privmix.planning.config import ReleaseConfig
from privmix.planning.table import TableColumn
from privmix.plans.design import Design
from privmix.plans.plan import Plan
from privmix.plans.registry import DESIGNS, made_by
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.releases.card import plain_picture
from privmix.scratch import ScratchFolder


@dataclass(frozen=True)
class Chosen:
    """The planner's choice from public facts, its picture (SVG), the public records by argument, and their origins."""

    choice: PlannerChoice
    picture: bytes
    public: Mapping[str, InputHashes]
    made_of: Sequence[tuple[str, Sketch]]


def choose(
    config: ReleaseConfig,
    epsilon: float,
    delta: float,
    assumptions: Assumptions,
    extractor: Extractor,
    columns: Columns,
    input_shape: tuple[int, ...],
    progress: Progress,
    *,
    project: bool = True,
) -> Chosen:
    """Find the best design for a budget and public assumptions; no private record is read."""
    # `extractor`, `columns`, `input_shape` are the private data's, for the public ones. The planner imports all
    # learners: a user who names a design does not wait for these.
    from privmix.planning.planner import choose_design
    from privmix.reports.pictures import draw_predictions

    assumptions.check(of_persons=config.per_person is not None)
    public: dict[str, InputHashes] = {}
    made_of: list[tuple[str, Sketch]] = []
    if assumptions.proxy is None:
        model, words = declared_model(config, assumptions, extractor)
    else:
        named = list(config.classes) if assumptions.proxy_classes is None else assumptions.proxy_classes
        proxy = open_dataset(
            assumptions.proxy, extractor, classes=named, columns=columns.elsewhere(), input_shape=input_shape
        )
        model, words = public_model(config, features_in_memory(proxy.source, extractor, progress), assumptions.holdings)
        public["proxy"] = InputHashes.of(proxy.source)
        made_of = origins_of({"proxy": proxy.source})
    project = project and projects(extractor)
    choice = choose_design(config, epsilon, delta, model, model_words=words, project=project, progress=progress)
    with ScratchFolder() as folder:
        path = folder / "predictions.svg"
        draw_predictions(choice.to_dict(), path)
        return Chosen(choice, plain_picture(path.read_bytes()), public, made_of)


def declared_model(config: ReleaseConfig, assumptions: Assumptions, extractor: Extractor) -> tuple[DataModel, str]:
    """Return records as declared, with the extractor's usual values elsewhere; and what they are in words."""
    given = {name: getattr(assumptions, name) for name in ("spectrum_decay", "between_share", "attainable")}
    if assumptions.class_shares is not None:
        shares = assumptions.class_shares
        given |= {"class_shares": shares.split(",") if isinstance(shares, str) else shares, "auc": assumptions.auc}
    chosen = extractor.usual.of(len(config.classes)) | {
        name: value for name, value in given.items() if value is not None
    }
    with in_terms_of({name: f"assume {name}" for name in given}):
        # A fixed seed: the same public facts give the same plan, also when a run resumes.
        model = DataModel.declared(config.dim, len(config.classes), np.random.default_rng(0), **chosen)
    return replace(model, holdings=assumptions.holdings or ONE_EACH), DECLARED


def public_model(config: ReleaseConfig, public: PrivateRecords, holdings: Holdings | None) -> tuple[DataModel, str]:
    """Return a model of records like the public ones, and its description; `holdings`: of persons."""
    features, labels = public.features, public.labels
    if features.shape[1] != config.dim:
        raise InvalidInput(
            "assume proxy", f"{features.shape[1]} features", f"{config.dim} features, as in the private data"
        )
    mean = np.zeros(config.dim, np.float32)
    transform = RecordTransform(config.clip_norm, "l2", mean, config.residual_clip_norm * config.clip_norm)
    # A fixed seed, as for declared records.
    generator = np.random.default_rng(0)
    model = DataModel.of_public_data(features, labels, len(config.classes), transform, generator)
    return replace(model, holdings=holdings or ONE_EACH), f"{len(labels)} {PUBLIC}"


def projects(extractor: Extractor) -> bool:
    """Whether features may be projected: where no number means anything by itself."""
    return not isinstance(extractor, Projected | Tabular)


def design_of(design: Any) -> Design[Any] | None:
    """Return the named design with its options; None where the planner is to choose."""
    if isinstance(design, Design) or design == AUTO:
        return None if design == AUTO else design
    names = ", ".join((AUTO, *DESIGNS))
    if not isinstance(design, str) or design.partition(":")[0] not in DESIGNS:
        raise InvalidInput("design", design, f"{names}, or one of privmix.designs")
    found: Design[Any] = chosen("design", design, DESIGNS)
    return found


def design_facts(plan: Plan) -> dict[str, str]:
    """Facts of a plan's design and noise that users look for first."""
    return {
        **made_by(plan).shown(plan),
        "joint noise multiplier": f"{plan.noise_multiplier:.5g}",
        "mean query's multiplier": "none" if not plan.centred else f"{plan.centre_noise_multiplier:.5g}",
        "bound around the mean": "none" if not plan.centred else f"{plan.residual_clip_norm:.5g}",
        "noise in " + ", ".join(plan.noise_std): ", ".join(f"{value:.5g}" for value in plan.noise_std.values()),
    }


def check_goal(goal: str, extractor: Any, *, design: str = AUTO) -> None:
    check_choice("goal", goal, GOALS)
    if goal == TABLE and not isinstance(extractor, Tabular):
        allowed = "classify; `table` needs the columns of a table: features tabular:SPEC, as they are"
        raise InvalidInput("goal", goal, allowed)
    if goal == TABLE and design != AUTO:
        raise InvalidInput("goal", goal, f"`table` only with design {AUTO}: design {design} was given")


def columns_of(tabular: Tabular) -> tuple[TableColumn, ...]:
    """Return the declared columns in use, and whether features determine the share of each of their states."""
    more = {
        name: {"ordinal": "categories", "date": "parts"}.get(kind.key, "bins") for name, kind in tabular.kinds.items()
    }
    states = table_states(tabular)
    return tuple(TableColumn(one.name, len(one.shares), _told(one, tabular.scale), more[one.name]) for one in states)


def _told(states: States, scale: float) -> bool:
    """Whether the mean features of a column determine the shares of its states."""
    count = len(states.shares)
    # The column of ones states that shares add up to 1.
    known = np.column_stack([states.features / scale, np.ones(count)])
    return count <= known.shape[1] and int(np.linalg.matrix_rank(known)) == count
