"""Options of a DP-SGD run: data, places and running here, and the options of its config, which describes them."""

from __future__ import annotations

from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix._registry import options_of
from privmix.jobs import options as shared
from privmix.jobs.persons import PrivateColumns
from privmix.options import described, option, with_default
from privmix.training.config import LINEAR, MECHANISMS_PLACE, OPTIONS, OptimiserConfig, TrainingConfig
from privmix.training.gradients.config import ExecutionConfig
from privmix.training.public.config import METHODS_PLACE, ExtendedConfig, WarmUpConfig
from privmix.training.views.config import ViewConfig

if TYPE_CHECKING:
    from privmix.features.base import Extractor
    from privmix.ledger.ledger import Ledger
    from privmix.training.examples import ModelFacts

_PRIVACY: Final = "Privacy"
_VIEWS: Final = "Views and mixup"
_PUBLIC: Final = "Public data"
_RUNNING: Final = "Running"


# For help; NAME stands for every name that the option takes.
MECHANISM_KINDS: Final = options_of(*MECHANISMS_PLACE)
METHOD_KINDS: Final[dict[str, type[Any]]] = {"NAME": ExtendedConfig, **options_of(*METHODS_PLACE)}
OPTIMISER_KINDS: Final = {"NAME": OptimiserConfig}
STRATEGY_KINDS: Final = {"NAME": ExecutionConfig}
VIEW_KINDS: Final = {"NAME": ViewConfig}
WARM_UP_KINDS: Final = {"NAME": WarmUpConfig}
_FIELDS: Final = {option: own for own, option in OPTIONS.items()}


def _setting(name: str, kinds: str = "") -> dict[str, Any]:
    """Metadata of an option that is a field of the config; None leaves it to the model."""
    item = TrainingConfig.__dataclass_fields__[_FIELDS.get(name, name)]
    text = item.metadata["help"]
    plain = item.default is not MISSING and item.default is not None and "Default" not in text
    words = {"help": text if plain else with_default(text, item.default), "setting": True}
    shown = {"shown": item.default} if plain else {}
    more = {"kinds": f"{__name__}:{kinds}"} if kinds else {}
    return {**item.metadata, **words, **shown, **more}


@described
@dataclass(frozen=True, eq=False, repr=False)
class TrainingOptions(PrivateColumns):
    """Options of a DP-SGD run. Options that are None take the model's own default."""

    data: Any = option(MISSING, shared.DATA_HELP, in_python=shared.DATA_IN_PYTHON)
    _: KW_ONLY
    epsilon: float = option(MISSING, shared.EPSILON_HELP)
    delta: float = option(MISSING, shared.DELTA_HELP)
    out: str | Path | None = option(None, "Folder to create.", needed=True)
    features: str | Extractor = option("pixels", shared.FEATURES_HELP)
    split: str = option("train", "Split of the dataset.")
    classes: Any = option(None, shared.CLASSES_HELP)
    records: int | None = option(None, "Public record count (or person count); the real one stays private.", _PRIVACY)
    private_count: bool = option(
        False, "Keep the record count private: estimate it, using 10% of the budget.", _PRIVACY
    )
    ledger: str | Ledger | None = option(None, shared.LEDGER_HELP, _PRIVACY, common=True)
    dataset: str | None = option(None, "Name of the dataset in `ledger`.", _PRIVACY, common=True)
    most_per_person: int | None = option(None, shared.CAP_HELP, _PRIVACY)
    seed: int | None = option(None, "Seed for tests and benchmarks: the model is then NOT private.", _PRIVACY)
    model: Any = field(default=None, metadata=_setting("model"))
    batch_size: int | None = field(default=None, metadata=_setting("batch_size"))
    epochs: float | None = field(default=None, metadata=_setting("epochs"))
    clip_norm: float | None = field(default=None, metadata=_setting("clip_norm"))
    clipping: str | None = field(default=None, metadata=_setting("clipping"))
    feature_norm: float | None = field(default=None, metadata=_setting("feature_norm"))
    mechanism: Any = field(default=None, metadata=_setting("mechanism", "MECHANISM_KINDS"))
    microbatch: int | None = field(default=None, metadata=_setting("microbatch"))
    adjacency: str | None = field(default=None, metadata=_setting("adjacency"))
    optimiser: str | OptimiserConfig | None = field(default=None, metadata=_setting("optimiser", "OPTIMISER_KINDS"))
    views: str | ViewConfig | None = field(default=None, metadata=_setting("views", "VIEW_KINDS"))
    bank: int | None = field(default=None, metadata=_setting("bank"))
    scenario: str | None = field(default=None, metadata=_setting("scenario"))
    warm_up: str | WarmUpConfig | None = field(default=None, metadata=_setting("warm_up", "WARM_UP_KINDS"))
    public_method: str | ExtendedConfig | None = field(default=None, metadata=_setting("public_method", "METHOD_KINDS"))
    strategy: str | ExecutionConfig | None = field(default=None, metadata=_setting("strategy", "STRATEGY_KINDS"))
    model_seed: int | None = field(default=None, metadata=_setting("model_seed"))
    pool: Any = option(None, "PUBLIC labelled dataset to mix with.", _VIEWS)
    public: Any = option(None, "PUBLIC dataset with real records of the same classes.", _PUBLIC, common=True)
    synthetic: Any = option(None, "Dataset of synthetic records, made from public data only.", _PUBLIC)
    validation: Any = option(
        None, "PUBLIC labelled dataset, for accuracy and loss in `callbacks`.", _RUNNING, python=True
    )
    callbacks: Any = option(None, "Functions that receive progress figures.", _RUNNING, python=True)
    dry_run: bool = option(False, "Show the plan without reading a private row.", _RUNNING, common=True, terminal=True)
    resume: bool = option(False, "Resume an interrupted run (same options).", _RUNNING, common=True)
    overwrite: bool = option(False, "Replace an existing `out`; discard an interrupted run.", _RUNNING, common=True)
    store: str | Path | None = option(None, shared.STORE_HELP, _RUNNING)
    device: str | None = option("auto", shared.DEVICE_HELP, _RUNNING)

    def config(self, facts: ModelFacts, records: int) -> TrainingConfig:
        """Return the config for a dataset of these public facts and n `records`, public or declared."""
        given = {item.name: getattr(self, item.name) for item in fields(self) if item.metadata.get("setting")}
        given |= {"model": LINEAR if self.model is None else self.model}
        if self.of_persons:
            given["per_person"] = self.persons.per_person or 1
        return TrainingConfig.for_model(records=records, facts=facts, epsilon=self.epsilon, delta=self.delta, **given)
