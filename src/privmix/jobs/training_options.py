"""What is asked of a DP-SGD run: data, places and running here, and the options of its config, which says them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.jobs.columns import Columns
from privmix.jobs.options import CAP_HELP, CLASSES_HELP, JobOptions
from privmix.jobs.persons import Persons
from privmix.options import described, given_in, option, said, with_leaves
from privmix.training.config import LINEAR, TrainingConfig

if TYPE_CHECKING:
    from privmix.training import ModelFacts

_PRIVACY: Final = "Privacy"
_VIEWS: Final = "Views and mixup"
_PUBLIC: Final = "Public data"
_RUNNING: Final = "Running"


@described
@dataclass(frozen=True, eq=False)
@with_leaves(TrainingConfig, after="seed", but=("epsilon", "delta"))
class TrainingOptions(JobOptions):
    """What is asked of a DP-SGD run. What is None takes the model's own default.

    Options of :class:`privmix.training.config.TrainingConfig` have their flat names here.
    """

    split: str = option("train", "Which part of the dataset.")
    classes: Any = option(None, CLASSES_HELP)
    columns: Columns = field(default_factory=Columns)
    records: int | None = option(
        None,
        "A public record count to plan with; the real one then stays private. With persons: how many there are.",
        _PRIVACY,
    )
    private_count: bool = option(
        False, "Keep the record count private: estimate it with noise, for a tenth of the budget.", _PRIVACY
    )
    persons: Persons = field(default_factory=Persons)
    ledger: Any = field(
        default=None,
        repr=False,
        metadata=said("Charge this ledger before reading: sqlite:///FILE or postgresql://...", _PRIVACY, common=True),
    )
    dataset: str | None = option(None, "With `ledger`: the dataset's name there.", _PRIVACY, common=True)
    most_per_person: int | None = option(None, CAP_HELP, _PRIVACY)
    seed: int | None = option(None, "Tests and benchmarks only: the model is then NOT private.", _PRIVACY)
    pool: Any = option(None, "Public labelled examples to mix with: a dataset.", _VIEWS)
    public: Any = option(None, "Real public records of the same classes: a dataset.", _PUBLIC, common=True)
    synthetic: Any = option(None, "Synthetic records, made from public data only.", _PUBLIC)
    validation: Any = option(None, "Public labelled records: `callbacks` get accuracy and loss on them.", _RUNNING)
    callbacks: Any = option(
        None,
        "Get steps, epsilon so far and figures of `validation`: tensorboard:FOLDER, mlflow:EXPERIMENT; in Python "
        "functions, too.",
        _RUNNING,
    )
    dry_run: bool = option(False, "Show the plan; read no private row.", _RUNNING, common=True)
    resume: bool = option(False, "Finish an interrupted run with the same options.", _RUNNING, common=True)
    overwrite: bool = option(False, "Replace an existing `out`; discard an interrupted run.", _RUNNING, common=True)
    store: Path | None = option(None, "Keep extracted features here (private!) and reuse them.", _RUNNING)
    device: str | None = option(None, "cpu or cuda. Default: cuda if there is one.", _RUNNING)

    @property
    def given(self) -> dict[str, Any]:
        """What is said of the config, by flat names."""
        return given_in(TrainingConfig, self)

    def config(self, facts: ModelFacts, records: int) -> TrainingConfig:
        """What these mean for a dataset.

        Args:
            facts: public facts of the data.
            records: n, public or declared.

        Raises:
            InvalidInput: a value is out of range, or these don't go together.

        Example:
            >>> from privmix.training import ModelFacts
            >>> facts = ModelFacts(("cat", "dog"), {"name": "pixels"}, (32, 32, 3), dim=3072)
            >>> said = {"model": "cnn", "views": "dp-mix-self", "k_base": 4}
            >>> config = TrainingOptions("cifar10", 8.0, 1e-5, **said).config(facts, 50_000)
            >>> config.views.views, config.batch_size
            (20, 4096)
        """
        given = {"model": LINEAR, **self.given, "epsilon": self.epsilon, "delta": self.delta}
        if self.persons.declared(self.columns.person):
            given["per_person"] = self.persons.per_person or 1
        return TrainingConfig.for_model(records=records, facts=facts, **given)
