"""Asking the planner: which design is expected to serve best, by public data or a declared spectrum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privmix.data.overlap import Contents, Sketch
from privmix.errors import InvalidInput, check_choice
from privmix.features import Extractor
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
from privmix.planning import Choice, ReleaseConfig
from privmix.planning.choice import DECLARED, PUBLIC
from privmix.planning.table import TableColumn
from privmix.plans import Design, Plan, all_designs, made_by
from privmix.progress import Progress
from privmix.publication import RecordTransform
from privmix.releases.picture import plain_picture
from privmix.scratch import ScratchFolder


@dataclass(frozen=True)
class Chosen:
    """What the planner found, from public facts.

    Attributes:
        choice: every design's prediction, and the best.
        picture: of them, as SVG.
        public: the public records that it looked at, by the argument that named them.
        made_of: what these were made of, where they are synthetic.
    """

    choice: Choice
    picture: bytes
    public: Mapping[str, Contents]
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
    """Ask the planner for the best design; no private record is looked at.

    Args:
        config: what is given whatever the design.
        epsilon, delta: the budget.
        assumptions: of the records.
        extractor, columns, input_shape: of the private data, for the public ones.
        progress: called as work proceeds.
        project: whether features may be projected, where these allow it.

    Raises:
        InvalidInput: the assumptions do not go together, or public data have other features.
        StorageError: public data can't be read.
    """
    # The planner takes all learners: whoever names a design does not wait for these.
    from privmix.planning import choose_design

    assumptions.check(of_persons=config.per_person is not None)
    public: dict[str, Contents] = {}
    made_of: list[tuple[str, Sketch]] = []
    if assumptions.proxy is None:
        model, words = declared_model(config, assumptions, extractor)
    else:
        named = list(config.classes) if assumptions.proxy_classes is None else assumptions.proxy_classes
        proxy = open_dataset(
            assumptions.proxy, extractor, classes=named, columns=columns.elsewhere(), input_shape=input_shape
        )
        found = features_in_memory(proxy.source, extractor, progress)
        model, words = public_model(config, found.features, found.labels, assumptions.holdings)
        public["proxy"] = Contents.of(proxy.source)
        made_of = origins_of({"proxy": proxy.source})
    project = project and projects(extractor)
    choice = choose_design(config, epsilon, delta, model, model_words=words, project=project, progress=progress)
    return Chosen(choice, picture_of(choice), public, made_of)


def declared_model(config: ReleaseConfig, assumptions: Assumptions, extractor: Extractor) -> tuple[DataModel, str]:
    """Records as they are declared, in all else as they usually are with the extractor; and what they are in words."""
    given = {name: getattr(assumptions, name) for name in ("spectrum_decay", "between_share", "attainable")}
    chosen = extractor.usual.of(len(config.classes)) | {
        name: value for name, value in given.items() if value is not None
    }
    model = DataModel.declared(config.dim, len(config.classes), np.random.default_rng(0), **chosen)
    return replace(model, holdings=assumptions.holdings or ONE_EACH), DECLARED


def public_model(
    config: ReleaseConfig, features: NDArray[Any], labels: NDArray[Any], holdings: Holdings | None = None
) -> tuple[DataModel, str]:
    """Records like public ones of (n, d) features and (n,) labels, and what they are in words.

    Args:
        config: of the release.
        features, labels: public.
        holdings: how many records persons have, where these are the units.

    Raises:
        InvalidInput: other features than the private data's.
    """
    if features.shape[1] != config.dim:
        raise InvalidInput("proxy", f"{features.shape[1]} features", f"{config.dim}, like the private data's")
    mean = np.zeros(config.dim, np.float32)
    transform = RecordTransform(config.clip_norm, "l2", mean, config.residual_clip_norm * config.clip_norm)
    generator = np.random.default_rng(0)
    model = DataModel.of_public_data(features, labels, len(config.classes), transform, generator)
    return replace(model, holdings=holdings or ONE_EACH), f"{len(labels)} {PUBLIC}"


def projects(extractor: Extractor) -> bool:
    """Whether features may be projected: where no number means anything by itself, and nothing was fitted to them."""
    return not (extractor.carries or isinstance(extractor, Projected | Tabular))


def picture_of(choice: Choice) -> bytes:
    """The planner's picture as SVG."""
    from privmix.reports.pictures import draw_predictions

    with ScratchFolder() as folder:
        path = folder / "predictions.svg"
        draw_predictions(choice.to_dict(), path)
        return plain_picture(path.read_bytes())


def design_of(design: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The design and its options, as a configuration takes them.

    Where the planner is to choose them, something that is right for any data.

    Raises:
        InvalidInput: there is no such design, or an option of another one.
    """
    if design == AUTO:
        for name, value in options.items():
            if name != "label_noise_ratio":
                knowing = [kind.name for kind in all_designs() if name in {one.name for one in kind.options()}]
                asked = f"; a value of one's own needs a design: {', '.join(knowing)}" if knowing else ""
                raise InvalidInput(name, value, f"no value with design {AUTO}, which chooses it{asked}")
        return {"design": "poisson", "mixup_degree": 1, **options}
    names = (AUTO, *(kind.name for kind in all_designs()))
    if not isinstance(design, Design) and design not in names:
        raise InvalidInput("design", design, ", ".join(names) + ", or one of privmix.designs")
    return {"design": design, **options}


def design_facts(plan: Plan) -> dict[str, str]:
    """What people want to see of a plan's design and noise."""
    return {
        **made_by(plan).shown(plan),
        "joint noise multiplier": f"{plan.noise_multiplier:.5g}",
        "mean query's multiplier": "none" if not plan.centred else f"{plan.centre_noise_multiplier:.5g}",
        "noise in " + ", ".join(plan.noise_std): ", ".join(f"{value:.5g}" for value in plan.noise_std.values()),
    }


def check_goal(goal: str, extractor: Any, *, design: str = AUTO) -> None:
    """Raise unless a release can be planned for this.

    Raises:
        InvalidInput: there is no such goal, or ``table`` where features are not those of a table, or beside a design.
    """
    check_choice("goal", goal, GOALS)
    if goal == TABLE and not isinstance(extractor, Tabular):
        allowed = "classify; `table` needs the columns of a table: features tabular:SPEC, as they are"
        raise InvalidInput("goal", goal, allowed)
    if goal == TABLE and design != AUTO:
        raise InvalidInput("goal", goal, f"`table` with design {AUTO} alone: design {design} was given")


def columns_of(tabular: Tabular) -> tuple[TableColumn, ...]:
    """The declared columns that are used, and whether the features tell the share of each of their states."""
    return tuple(TableColumn(one.name, len(one.shares), _told(one, tabular.scale)) for one in table_states(tabular))


def _told(states: States, scale: float) -> bool:
    """Whether the mean features of a column determine the shares of its states."""
    count = len(states.shares)
    known = np.column_stack([states.features / scale, np.ones(count)])
    return count <= known.shape[1] and int(np.linalg.matrix_rank(known)) == count
