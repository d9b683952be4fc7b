"""Options of all jobs that have few, and the machines that do the work; help shows them, so importing this is quick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from privmix._registry import literals_of
from privmix.errors import InvalidInput, MissingExtra, check_integer, check_number
from privmix.jobs.columns import Columns, ModelColumns
from privmix.jobs.persons import PrivateColumns
from privmix.named import chosen
from privmix.options import EXPERT, described, option

if TYPE_CHECKING:
    from privmix.engine.ray import Cluster
    from privmix.features.base import Extractor
    from privmix.learning.base import ReleaseLearner
    from privmix.ledger.ledger import Ledger

AUTO: Final = "auto"
"""In place of a design or a learner: it is chosen by public facts."""

CLASSIFY: Final = "classify"
TABLE: Final = "table"
GOALS: Final = (CLASSIFY, TABLE)
"""What a planner weighs: a classifier's accuracy, or how faithful pairs of a table's columns are."""

EPSILON_HELP: Final = "Privacy budget epsilon, such as 1; smaller is more private."
DELTA_HELP: Final = "Privacy budget delta, far below 1 / number of records."
DESIGN_HELP: Final = "Release design, as NAME or NAME:KEY=VALUE,..."
DESIGN_NAMES: Final = ", ".join(
    one["name"] for one in literals_of("privmix.designs", by="register", group="privmix.designs")
)
DESIGN_KINDS: Final = "privmix.plans.registry:DESIGNS"
CLASSES_HELP: Final = "Class list: a number K, names with commas, or @FILE."
CAP_HELP: Final = "Public bound on records per person, for a `ledger` of persons."
FEATURES_HELP: Final = "Public extractor, such as pixels, scattering, minilm or tabular:SPEC.json."
MODULE_HELP: Final = "Your own network: torch:FILE.py:NAME or torch:PACKAGE.MODULE:NAME."
DATA_HELP: Final = "Private dataset: file, folder, pattern or address (s3://bucket/x)."
DATA_IN_PYTHON: Final = "Also arrays, frames, tensors and datasets."
LEDGER_HELP: Final = "Ledger to charge before reading: sqlite:///FILE or postgresql://..."
DEVICE_HELP: Final = "Device: cpu, cuda or auto (cuda if available)."
STORE_HELP: Final = "Private folder to keep and reuse extracted features."
UNLABELLED_HELP: Final = "Records, with or without labels: file, folder, pattern or address."
PART_HELP: Final = "Split of the data. Default: test if present, else all data."


Said = Mapping[str, Any] | Sequence[str] | None
"""Column -> what is said of it, or texts ``"COLUMN=WHAT"``."""


def _column(text: str, several: str) -> Any:
    return option(None, text, "Columns, by public knowledge", several=several)


@described
@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """Contents of columns, by public knowledge."""

    number: Said = _column(
        "Numbers in a range: age=0:120, or in 12 intervals: age=0:120:12.", "COLUMN=LOW:HIGH[:INTERVALS]"
    )
    bins: Said = _column("Numbers in intervals: age=18,40,65, or with bounds: age=0:18,40,65:120.", "COLUMN=EDGE,EDGE")
    integer: Said = _column("Number columns that hold whole numbers only, with commas.", "COLUMNS")
    category: Said = _column("Categories of a column: sex=F,M.", "COLUMN=VALUE,VALUE")
    ordinal: Said = _column("Ordered categories of a column: stage=I,II,III.", "COLUMN=VALUE,VALUE")
    date: Said = _column(
        "Dates in a range: admitted=2015-01-01:2025-12-31, then optionally a format, :%d.%m.%Y.", "COLUMN=FIRST:LAST"
    )
    boolean: Said = _column("Columns of true and false, or with their texts: smoker=ja:nein.", "COLUMN[=TRUE:FALSE]")
    ignore: Said = _column("Unused columns, such as names and identifiers, with commas.", "COLUMNS")
    missing: Said = _column(
        "Texts of missing values: weight=NA,-999; without a column, in all columns.", "[COLUMN=]TEXT,TEXT"
    )
    look: bool = option(False, "Read the records and propose the rest; no guarantee covers this.")


ESTIMATES: Final = "Private estimates"


@described
@dataclass(frozen=True, kw_only=True)
class EstimateOptions:
    """Cost of private estimates of a table's columns, and who pays."""

    epsilon: float | None = option(None, "Privacy budget of columns named alone: number AGE, category WARD.", ESTIMATES)
    delta: float | None = option(None, DELTA_HELP, ESTIMATES)
    ledger: str | Ledger | None = option(None, LEDGER_HELP, ESTIMATES)
    dataset: str | None = option(None, "Name of the dataset in `ledger`.", ESTIMATES)


@described
@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """A file of a user's own that an extractor needs."""

    features_model: str | Path | None = option(
        None, "Your copy of the extractor's model; FILE:trust for a program (.pt2).", EXPERT
    )


CANARIES: Final = "Canaries"


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CanaryOptions(PrivateColumns, ModelFiles):
    """The owner's records, which canaries are put among, and who pays; TARGET states how its images and lists look.

    In Python one setting of the canaries may have an argument of its own.
    """

    data: Any = option(None, "Training records of TARGET, with `canaries`.", CANARIES, common=True)
    canaries: int | str | None = option(
        None,
        "Number of canaries inserted at random: NUMBER or NUMBER:KEY=VALUE,...",
        CANARIES,
        common=True,
        kinds="privmix.attacks.canaries:WORDS",
    )
    canary_kind: str | None = option(None, "Kind of canary, as in `canaries`.", python=True)
    evidence: str | None = option(None, "Evidence, as in `canaries`.", python=True)
    canary_records: int | None = option(None, "Records of each canary, as in `canaries`.", python=True)
    guesses: int | None = option(None, "Number of guesses, as in `canaries`.", python=True)
    split: str = option("train", "Split of the dataset.", CANARIES)
    image_size: int | None = field(default=None, init=False)
    colour: str | None = field(default=None, init=False)
    feature_length: int | None = field(default=None, init=False)
    per_person: int | None = field(default=None, init=False)
    module: Any = option(None, MODULE_HELP, CANARIES)
    store: str | Path | None = option(None, STORE_HELP, CANARIES)
    ledger: str | Ledger | None = option(None, "Ledger to charge before reading the data.", CANARIES)
    dataset: str | None = option(None, "Name of the dataset in `ledger`.", CANARIES)
    most_per_person: int | None = option(None, CAP_HELP, CANARIES)
    public_data: bool = option(False, "Declare the records public, so that figures may be shown.", CANARIES)


_LEARNERS: Final = ", ".join(
    one["name"]
    for one in literals_of("privmix.learning,privmix.designs", by="LEARNERS.register", group="privmix.learners")
)


@described
@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Run folder of the figures."""

    record: str | Path | None = option(None, "Run folder for the figures, which privmix report reads.")

    def check_record(self) -> None:
        """Raise for a record inside a published folder, before the work: a record may be private."""
        from privmix.jobs.places import check_unpublished, check_writable

        if self.record is not None:
            check_unpublished("record", Path(self.record))
            check_writable("record", Path(self.record))


@described
@dataclass(frozen=True, kw_only=True)
class NewFile:
    """Whether existing files are replaced."""

    overwrite: bool = option(False, "Replace existing files.")


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitOptions(ModelColumns, ModelFiles):
    """How to learn from a release, and where the model goes."""

    out: str | Path | None = option(None, "Folder to create for the model.", needed=True)
    learner: str | ReleaseLearner = option(
        AUTO, "Learner by name, or auto: chosen by the release's design.", names=_LEARNERS
    )
    model: str = option("linear", "Model of generalized-kl: linear, or cnn on pixel releases.")
    epochs: int = option(200, "Passes over the rows (generalized-kl).")
    features: str | Extractor | None = option(
        None, "Public extractor for the images of a pixel release (generalized-kl)."
    )
    augment: str | None = option(
        None, "Augmentation of released images (generalized-kl): flip, crop or flip,crop.", EXPERT
    )
    validation: Any = option(
        None, "Labelled data for accuracy by epoch (generalized-kl); keep the figures private.", EXPERT
    )
    validation_split: str | None = option(None, "Split of `validation`. Default: test.", EXPERT)
    regularisation: float | str = option(
        AUTO, "Regularisation (ridge learners): auto, or a share of the largest eigenvalue.", EXPERT
    )
    seed: int = option(0, "Seed of weights, row order and augmentations (generalized-kl).", EXPERT)
    class_descriptions: str | Mapping[str, Any] | None = option(
        None,
        "Public class descriptions for texts (discriminant): names, .json or .csv file.",
        EXPERT,
        in_python="Also a mapping from classes to texts.",
    )
    overwrite: bool = option(False, "Replace an existing `out`.")


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CheckOptions(Columns):
    """Data to check, their extractor, and what is shown."""

    features: str | Extractor = option("pixels", FEATURES_HELP)
    classes: Any = option(None, CLASSES_HELP)
    split: str = option("train", "Split of the dataset.")
    clip_norm: float = option(1.0, "Feature clipping bound of the planned release.")
    show_values: bool = option(False, "Show the values that do not fit, which are private.")
    show: int = option(20, "Upper limit on listed places.")


ENGINE_HELP: Final = "Compute engine: local, as local:memory_gb=8, or ray, as ray:address=auto."


@described
@dataclass(frozen=True)
class Local:
    """This machine."""

    memory_gb: float | None = option(None, "Memory for sums and records, in GiB. Default: half of all.")
    workers: int | None = option(None, "Number of threads. Default: every core.")

    name: ClassVar[str] = "local"

    @property
    def cluster(self) -> Cluster | None:
        """The cluster, not connected; None: this machine."""
        return None


@described
@dataclass(frozen=True)
class Ray(Local):
    """A Ray cluster."""

    workers: int | None = option(None, "Number of parallel tasks. Default: every core or GPU.")
    address: str | None = option(None, "Address of the cluster. Default: a new local one.")

    name: ClassVar[str] = "ray"

    @property
    def cluster(self) -> Cluster | None:
        # Its module takes a while to import.
        from privmix.engine.ray import Cluster

        return Cluster(self.address)


ENGINES: Final[dict[str, type[Local]]] = {"local": Local, "ray": Ray}


def machine_of(engine: str | Local, design: str | None = None) -> Local:
    """Return a job's machine, checked before budget is charged: also whether a release's design can run there."""
    made = engine if isinstance(engine, Local) else chosen("engine", engine, ENGINES)
    assert isinstance(made, Local)
    if made.memory_gb is not None:
        check_number("engine memory_gb", made.memory_gb, low=0, low_open=True)
    if made.workers is not None:
        check_integer("engine workers", made.workers, low=1)
    if made.name == "local":
        return made
    from privmix.plans.registry import design_named

    if design is not None and made.name not in design_named(design).engines:
        raise InvalidInput("engine", made.name, f"local for design {design}, which reads records once and in blocks")
    if find_spec("ray") is None:
        raise MissingExtra("ray", "ray")
    return made
