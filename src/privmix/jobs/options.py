"""What jobs are asked, option by option: one file for all whose options are few. Importing it takes no time.

Help shows these options, and can't wait for the jobs, which import what they work with. The options of a release are in
:mod:`privmix.jobs.release_options`, those of a training in :mod:`privmix.jobs.training_options`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix._registry import literals_of
from privmix.audits.defaults import ATTACKS, CONFIDENCE, RUNS
from privmix.jobs.columns import Columns
from privmix.jobs.persons import PERSONS_PANEL, PersonFiles, Persons
from privmix.options import EXPERT, described, option, said

if TYPE_CHECKING:
    from privmix.features import Extractor
    from privmix.learning.base import ReleaseLearner

AUTO: Final = "auto"
"""In place of a design or a learner: it is chosen by public facts."""

CLASSIFY: Final = "classify"
TABLE: Final = "table"
GOALS: Final = (CLASSIFY, TABLE)
"""What a planner weighs: a classifier's accuracy, or how faithful pairs of a table's columns are."""

GOAL_HELP: Final = (
    "What the planner optimises: classify, a classifier's accuracy; table, faithful pairs of the columns of a table "
    "(features tabular:SPEC)."
)

CLASSES_HELP: Final = (
    "Class list: a number K, names with commas, or @FILE. The file has one name a line. Needed unless a schema has it."
)
DELTA_HELP: Final = (
    "Delta of (epsilon, delta)-DP: any outcome is at most e^epsilon times as likely, plus delta, if one record changes."
)
CAP_HELP: Final = (
    "With a `ledger` for persons and no `person`: nobody has more than K records. You vouch for that, and know it "
    "without the data. The charge is then what K records together cost."
)
ADDRESS_HELP: Final = "Ray: the cluster. Default: start one here."
FEATURES_MODEL_HELP: Final = (
    "Your copy of the extractor's model, where it is a file or folder: none is opened unless you name it."
)
FEATURES_HELP: Final = (
    "Public extractor: pixels, scattering, efficientnet, minilm (texts), tabular:SPEC.json or others. Also identity, "
    "text:MODEL, vision:MODEL and module:FILE, where MODEL is a local folder or OWNER/NAME on the hub. efficientnet is "
    "for photographs, by a network that has seen ImageNet's; scattering:ycbcr,mirror takes none; minilm:3+4+5+6 is for "
    "kinds of text."
)
MODULE_HELP: Final = "Network of your own that was trained: torch:FILE.py:NAME or torch:PACKAGE.MODULE:NAME."
UNLABELLED_HELP: Final = "Records, with or without labels: file, folder, pattern or address; in Python in memory, too."
PART_HELP: Final = "Which part of the data. Default: test where there is one, else all that names no part."
TRUST_HELP: Final = "The file of `features_model` is a program (TorchScript, .pt2): let it run."


@described
@dataclass(frozen=True, eq=False)
class JobOptions:
    """Of which data, at which price, for which place."""

    # Data in memory are private: no picture of an object shows them.
    data: Any = field(
        repr=False,
        metadata=said(
            "Private dataset: file, folder, pattern such as 'part-*.parquet', or address such as s3://bucket/x. "
            f"Formats: {', '.join(one['words'] for one in literals_of('privmix.data'))}, images by class, saved "
            "Hugging Face datasets."
        ),
    )
    epsilon: float = field(metadata=said("Privacy budget, epsilon."))
    delta: float = field(metadata=said("Privacy budget, delta; well below 1/n."))
    out: Path | None = option(None, "Folder to create.")
    features: str | Extractor = option("pixels", FEATURES_HELP)


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SplitOptions(Columns, PersonFiles):
    """Which records become public, of which data."""

    public: str | Path = option(MISSING, "New file for the records that become public (.npz; tables: .jsonl).")
    private: str | Path = option(MISSING, "New file for the records that stay private, yours alone.")
    share: float | None = option(None, "Share of all records (persons) that becomes public, as 0.04.")
    count: int | None = option(None, "In its place: how many, of each class (uniform: in all).")
    how: str = option("per-class", "per-class: equally many of each class; uniform: drawn from all records alike.")
    split: str = option("train", "Which part of the dataset.")
    classes: Any = option(None, CLASSES_HELP)
    text_column: str | None = option(None, "The texts' column.")
    table_columns: str | Sequence[str] | None = option(
        None, "Columns of a table, with commas, which may hold texts; those of its tabular: file.", EXPERT
    )
    seed: int | None = option(None, "Of the draw. Default: unpredictable.")


Said = Mapping[str, Any] | Sequence[str] | None
"""Column -> what is said of it, or texts ``"COLUMN=WHAT"``."""


_SAID: Final = "What columns hold, by public knowledge"


@described
@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """What columns hold, by public knowledge."""

    number: Said = option(
        None,
        "A number between bounds: age=0:120, or in 12 intervals: age=0:120:12. Once for each column, as the next.",
        _SAID,
        several="COLUMN=LOW:HIGH[:INTERVALS]",
    )
    bins: Said = option(
        None, "A number by intervals: age=18,40,65, with bounds age=0:18,40,65:120.", _SAID, several="COLUMN=EDGE,EDGE"
    )
    integer: Said = option(
        None, "Columns of number and bins that hold whole numbers, with commas.", _SAID, several="COLUMNS"
    )
    category: Said = option(None, "One of some values: sex=F,M.", _SAID, several="COLUMN=VALUE,VALUE")
    ordinal: Said = option(None, "One of some values in order: stage=I,II,III.", _SAID, several="COLUMN=VALUE,VALUE")
    date: Said = option(
        None,
        "A day between two days: admitted=2015-01-01:2025-12-31; how it is written may follow, as "
        "birth=1900-01-01:2025-12-31:%d.%m.%Y.",
        _SAID,
        several="COLUMN=FIRST:LAST",
    )
    boolean: Said = option(
        None,
        "True or false: names of columns, with commas; or their texts for both: smoker=ja:nein.",
        _SAID,
        several="COLUMN[=TRUE:FALSE]",
    )
    ignore: Said = option(
        None, "Not used, as names and identifiers: names of columns, with commas.", _SAID, several="COLUMNS"
    )
    missing: Said = option(
        None,
        "Texts that mean a missing value, as empty cells do: weight=NA,-999; without a column, in all. It has a "
        "feature of its own then. Without texts, weight=, empty cells alone.",
        _SAID,
        several="[COLUMN=]TEXT,TEXT",
    )
    look: bool = option(
        False,
        "Read the records, and propose the rest. The file then tells of the records, which no guarantee covers, and "
        "says so.",
    )


@described
@dataclass(frozen=True, kw_only=True)
class PriceOptions:
    """Of which plan, by which accountant."""

    records: int | None = option(None, "Record count n, taken as public.")
    rows: int | None = option(None, "Rows released, T. Default: n.")
    delta: float | None = option(None, f"{DELTA_HELP} Default: 1e-05, or the release's.")
    release: Path | None = option(
        None, "Release or trained model: price all that its plan ran, the mean query too, in place of a design."
    )
    noise_multiplier: float | None = option(None, "Joint noise multiplier s of a row (features and labels together).")
    epsilon: float | None = option(None, "Target: find the least noise that meets it.")
    classes: int = option(10, "Number of classes (hierarchical, classwise).")
    accountant: str = option("pld", "pld, rdp, moments, pure; gdp_clt, as_published compare.")
    every: bool = option(False, "A table over all accountants.", flag="all")
    adjacency: str | None = option(
        None,
        "Neighbours: add_remove or replace_one. Default: the design's own; fixed with laplace noise has both.",
        EXPERT,
    )
    as_published: bool = option(False, "The papers' figure: a comparison, not a bound.", EXPERT, off="no")
    records_per_person: int | None = option(
        None, "Say also what the price for one record is for whoever has so many, K (group privacy).", EXPERT
    )


_CLAIM: Final = "A design without a release"


@described
@dataclass(frozen=True, kw_only=True)
class DesignClaim:
    """What is claimed of a design that is audited without a release."""

    records: int | None = option(None, "Record count n of the design.", _CLAIM)
    rows: int | None = option(None, "Rows released, T. Default: n.", _CLAIM)
    epsilon: float | None = option(None, "Claim of the design.", _CLAIM)
    delta: float = option(1e-5, DELTA_HELP, _CLAIM)
    classes: int = option(10, "Number of classes.", _CLAIM)
    centre: str = option("none", "none, or private: release the mean first.", _CLAIM)
    as_published: bool = option(
        False, "Take the noise from the papers' formula: audits the published claim.", _CLAIM, off="no"
    )


@described
@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """How an audit goes."""

    runs: int | None = option(None, f"Independent runs, half of them with the record. Default: {RUNS}.")
    seconds: float | None = option(
        None, "Go on for about so long: as many runs as that allows, unless `runs` is given."
    )
    enough: float | None = option(
        None, "Stop as soon as this share of the claim is proven, or it is refuted; the result holds whenever it stops."
    )
    confidence: float = option(CONFIDENCE, "Confidence of what is proven.")
    seed: int | None = option(None, "For tests: the same runs again.")


CANARIES: Final = "Canaries in the owner's data"
_option = partial(option, panel=CANARIES)


@described
@dataclass(frozen=True, kw_only=True)
class TargetColumns(Columns):
    """Columns of the records that a release or model was made of, which says what images and lists are like."""

    label: str = _option("label", "The labels' column.", flag="label-column")
    image_column: str = _option("image", "The column of encoded images.")
    feature_column: str | None = _option(None, "The column of number lists.")
    text_column: str | None = _option(None, "The texts' column.")
    image_size: int | None = _option(None, "Side that images are scaled to. Default: TARGET's.")
    colour: str | None = _option(None, "grey or rgb, for images. Default: as TARGET's.")
    columns: str | Sequence[str] | Columns | None = option(None, "Columns of numbers, with commas.", CANARIES)
    feature_length: int | None = _option(None, "How many numbers each list has. Default: TARGET's.")
    separator: str | None = _option(None, "CSV: what stands between cells: , ; | or tab.")
    decimal: str | None = _option(None, "CSV: the decimal mark of numbers, a point or a comma.")
    encoding: str | None = _option(None, "CSV: utf-8, latin-1, cp1252 (Windows), cp1250 or iso-8859-15.")
    header: str | Sequence[str] | None = _option(None, "CSV without a header line: names of the columns, with commas.")
    no_header: int | None = _option(None, "CSV without a header line: how many columns there are.")
    person: str | Sequence[str] | None = option(
        None, "The column or columns that name a record's person, where TARGET's unit is a person.", PERSONS_PANEL
    )


@described
@dataclass(frozen=True, kw_only=True, eq=False)
class TargetPersons(Persons):
    """Whose the records are that a release or model was made of, which says how many of theirs count."""

    per_person: int | None = field(default=None, init=False)


@described
@dataclass(frozen=True, kw_only=True)
class CanaryOptions:
    """How an audit with canaries goes."""

    data: Any = field(
        default=None,
        repr=False,
        metadata=said("With `canaries`: the records that TARGET was made of.", CANARIES, common=True),
    )
    canaries: int | None = _option(
        None, "Insert each of so many by the toss of a coin, and run TARGET's plan once.", common=True
    )
    canary_kind: str = _option(
        "planted",
        "planted: what reveals most (models: gradients, seen step by step); mislabelled records; blank ones (models).",
    )
    evidence: str = _option("rows", "rows (or steps); neighbours, tiles: differences, which show noise used twice.")
    canary_records: int | None = _option(
        None,
        "Records of each canary, where TARGET's unit is a person: a canary is a person then. Default: TARGET's "
        "`per_person`, K. 100 times K tries the cap; the data grow by as many records.",
    )
    guesses: int | None = _option(None, "Coins to guess. Default: what proves most if the claim holds.")
    split: str = _option("train", "Which part of the dataset.")
    columns: Columns = field(default_factory=TargetColumns)
    persons: Persons = field(default_factory=TargetPersons)
    features_model: str | Path | None = option(None, FEATURES_MODEL_HELP, CANARIES)
    trust_features_model: bool = _option(False, TRUST_HELP)
    module: Any = option(None, MODULE_HELP, CANARIES)
    store: str | Path | None = option(None, "Keep extracted features here (private!) and reuse them.", CANARIES)
    ledger: str | None = field(
        default=None, repr=False, metadata=said("Charge the run to this ledger before reading.", CANARIES)
    )
    dataset: str | None = _option(None, "With `ledger`: the dataset's name there.")
    most_per_person: int | None = _option(None, CAP_HELP)
    public_data: bool = _option(False, "The records are public, so the figures are too.")


@described
@dataclass(frozen=True, kw_only=True)
class MembershipOptions:
    """How membership inference goes."""

    members: str = option("train", "Split that the model was made of.")
    nonmembers: str = option("test", "Split of the same kind that it was not made of.")
    held_out: Any = option(None, "Dataset that the non-members are in, where it is another than the members'.", EXPERT)
    attacks: str | Sequence[str] = option(
        "loss", f"Which, with commas: {', '.join(ATTACKS)}. All but loss need references.", flag="attack"
    )
    references: int = option(16, "Reference models to make; each is a release and a fit, or a training run.")
    release: str | Path | None = option(None, "Release that the model was fitted on; references are made by its plan.")
    work: str | Path | None = option(
        None, "Private folder for finished references: the same command goes on with what is there.", EXPERT
    )
    confidence: float = option(0.95, "Confidence of all intervals.", EXPERT)
    highest: int = option(10, "Members at the highest risk to list, for the owner.", EXPERT)
    public_data: bool = option(False, "The data are public: single records are not listed.")


@described
@dataclass(frozen=True, kw_only=True)
class CertifiedLineOptions:
    """Against which guarantee, how many records, and what happens without them.

    The guarantee is that of a folder; or of a design with its noise; or an epsilon alone, with delta and adjacency.
    """

    poisoned: int = option(0, "Number of records that the attacker controls.")
    clean_success: float | None = option(
        None, "Probability that what the attacker wants happens without poisoning, where it is known."
    )
    clean_successes: int | None = option(None, "In its place: in how many runs without poisoning it happened.")
    clean_trials: int | None = option(None, "The number of those independent runs.")
    confidence: float = option(0.95, "Confidence of the upper limit of a base rate that was measured.")
    how: str = option("changed", "What happens to the records: changed, inserted or deleted.")
    folder: Path | None = option(None, "Release or trained model: its plan says what ran.", flag="release")
    epsilon: float | None = option(None, "Epsilon of the guarantee; with `design`, the target that its noise meets.")
    delta: float = option(1e-5, "Delta of the guarantee.")
    adjacency: str | None = option(
        None, "For an epsilon alone: add_remove (default) or replace_one. Designs and folders have their own."
    )
    records: int | None = option(None, "With `design`: record count n, taken as public.")
    rows: int | None = option(None, "With `design`: rows released, T. Default: n.")
    classes: int = option(10, "With `design`: number of classes (hierarchical, classwise).")
    noise_multiplier: float | None = option(None, "With `design`: joint noise multiplier s, in place of `epsilon`.")


_LEARNERS: Final = ", ".join(
    one["name"]
    for one in literals_of("privmix.learning,privmix.designs", by="LEARNERS.register", group="privmix.learners")
)


@described
@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """Files of a user's own that an extractor needs."""

    features_model: str | Path | None = option(None, FEATURES_MODEL_HELP, EXPERT)
    trust_features_model: bool = option(False, TRUST_HELP, EXPERT)


@described
@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Where figures are kept."""

    record: str | Path | None = option(
        None, "Run folder to keep the figures in, not in a release or model; privmix report makes a page of them."
    )

    def check_record(self) -> None:
        """Records may be private, and what is in a release or a model is handed to others; asked before the work."""
        from privmix.jobs.places import check_unpublished, check_writable

        if self.record is not None:
            check_unpublished("record", Path(self.record))
            check_writable("record", Path(self.record))


@described
@dataclass(frozen=True, kw_only=True)
class NewFile:
    """What is there already."""

    overwrite: bool = option(False, "Replace what is there.")


@described
@dataclass(frozen=True, kw_only=True)
class Inputs(ModelFiles):
    """What is declared of a dataset that a model or release, or what was asked, says how to read."""

    classes: Any = option(None, CLASSES_HELP)
    columns: Columns = field(default_factory=Columns)


@described
@dataclass(frozen=True, eq=False)
class ModelInputs(Inputs):
    """The same, where a model predicts: a network of the user's own needs its module."""

    module: Any = option(None, MODULE_HELP, EXPERT)


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitOptions(Columns, ModelFiles):
    """How to learn from a release, and where the model goes."""

    out: str | Path | None = option(None, "Folder to create for the model.", needed=True)
    learner: str | ReleaseLearner = option(
        AUTO,
        "auto: discriminant for moments, Poisson and class-wise rows, two-stage for releases in two stages, "
        "what a design from elsewhere names, else noise-aware-ridge; or by name: "
        f"{_LEARNERS} (generalized-kl: the papers').",
    )
    model: str = option("linear", "generalized-kl: linear, or cnn on pixel releases.")
    epochs: int = option(200, "generalized-kl: passes over the rows.")
    features: str | Extractor | None = option(
        None,
        "generalized-kl, on a release of pixels: put the released images through this public extractor (scattering, "
        "say), and learn from what it makes of them.",
    )
    augment: str | None = option(
        None, "generalized-kl, on a release of pixels: flip, crop or flip,crop of the released images.", EXPERT
    )
    validation: Any = option(
        None,
        "generalized-kl: labelled data; shows the accuracy at the last epoch and the best. They change nothing "
        "in the model. For their owner alone: choosing an epoch by private data is not covered by the guarantee.",
        EXPERT,
    )
    validation_split: str | None = option(None, "Which part of `validation`. Default: test.", EXPERT)
    regularisation: float | str = option(
        AUTO, "noise-aware-ridge, second-moments: auto, or a share of the largest eigenvalue.", EXPERT
    )
    seed: int = option(0, "generalized-kl: initial weights, order of rows, augmentations.", EXPERT)
    class_descriptions: str | Mapping[str, Any] | None = option(
        None,
        "discriminant, on texts: a public prior for class means. names: the classes' own names; or a JSON or CSV "
        "file with descriptions (in Python a mapping, too: from each class to one text or several).",
        EXPERT,
    )
    overwrite: bool = option(False, "Replace an existing `out`.")


@described
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CheckOptions(Columns, PersonFiles):
    """Of which data, by which extractor, and what is shown."""

    features: str | Extractor = option("pixels", FEATURES_HELP)
    classes: Any = option(None, CLASSES_HELP)
    split: str = option("train", "Which part of it.")
    clip_norm: float = option(1.0, "Bound on features that the release will have.")
    show_values: bool = option(False, "Show the values that do not fit: they are private.")
    show: int = option(20, "List so many places at most.")
