"""privmix: publish labelled data with differential privacy, and train private models.

``import privmix as pm`` takes no time: each name below is imported when it is first used.

Example:
    >>> import privmix as pm
    >>> from sklearn.datasets import load_digits
    >>> x, y = load_digits(return_X_y=True)
    >>> release = pm.release((x / 16, y), classes=range(10), features="pixels", design="moments", epsilon=2, delta=1e-5)
    >>> pm.fit(release).predict(x[:1] / 16).shape
    (1,)
"""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix import designs
    from privmix.accounting.api import Calibration, calibrate, delta, epsilon
    from privmix.accounting.base import PrivacyCost, UnsupportedEvent
    from privmix.accounting.events import (
        Adjacency,
        Allocated,
        Bounded,
        ClusterSampled,
        Composed,
        Event,
        FixedSizeSampled,
        Gaussian,
        Laplace,
        NormalWeighted,
        PoissonSampled,
        Repeated,
    )
    from privmix.commands import series
    from privmix.commands.audit import audit
    from privmix.commands.check import check
    from privmix.commands.evaluate import Evaluation, evaluate
    from privmix.commands.evaluate_table import TableEvaluation, evaluate_table
    from privmix.commands.export import export
    from privmix.commands.extract_features import ExtractedFeatures, extract_features
    from privmix.commands.fit import Predictions, fit, predict
    from privmix.commands.forecast import forecast
    from privmix.commands.inspect import inspect
    from privmix.commands.ledger import ledger_total
    from privmix.commands.membership import attack
    from privmix.commands.release import plan, release
    from privmix.commands.replay import replay
    from privmix.commands.report import report
    from privmix.commands.sample import sample
    from privmix.commands.sign import keygen, sign
    from privmix.commands.spec import TableSpec, spec
    from privmix.commands.train import train
    from privmix.commands.transform import transform
    from privmix.commands.verify import verify
    from privmix.designs.moments.learner import SecondMomentsClassifier
    from privmix.designs.stages.learner import ThreeStageClassifier, TwoStageClassifier
    from privmix.errors import InvalidInput, MissingExtra, NotPrivateWarning, PrivmixError, StorageError
    from privmix.jobs.classifier import ReleaseClassifier
    from privmix.jobs.columns import Columns
    from privmix.jobs.data_check import DataCheck
    from privmix.jobs.models import Model
    from privmix.jobs.release_folder import Release, load
    from privmix.jobs.sampling import SampledTable
    from privmix.learning.discriminant import DiscriminantClassifier
    from privmix.learning.kl import GeneralizedKLClassifier
    from privmix.learning.ridge import NoiseAwareRidgeClassifier
    from privmix.ledger.ledger import Ledger
    from privmix.ledger.pricing import BudgetExceeded
    from privmix.training.classifier import DPClassifier
else:
    __getattr__, __dir__ = lazily(__name__)

__version__ = "0.1.0"

__all__ = [
    "Adjacency",
    "Allocated",
    "Bounded",
    "BudgetExceeded",
    "Calibration",
    "ClusterSampled",
    "Columns",
    "Composed",
    "DPClassifier",
    "DataCheck",
    "DiscriminantClassifier",
    "Evaluation",
    "Event",
    "ExtractedFeatures",
    "FixedSizeSampled",
    "Gaussian",
    "GeneralizedKLClassifier",
    "InvalidInput",
    "Laplace",
    "Ledger",
    "MissingExtra",
    "Model",
    "NoiseAwareRidgeClassifier",
    "NormalWeighted",
    "NotPrivateWarning",
    "PoissonSampled",
    "Predictions",
    "PrivacyCost",
    "PrivmixError",
    "Release",
    "ReleaseClassifier",
    "Repeated",
    "SampledTable",
    "SecondMomentsClassifier",
    "StorageError",
    "TableEvaluation",
    "TableSpec",
    "ThreeStageClassifier",
    "TwoStageClassifier",
    "UnsupportedEvent",
    "attack",
    "audit",
    "calibrate",
    "check",
    "delta",
    "designs",
    "epsilon",
    "evaluate",
    "evaluate_table",
    "export",
    "extract_features",
    "fit",
    "forecast",
    "inspect",
    "keygen",
    "ledger_total",
    "load",
    "plan",
    "predict",
    "release",
    "replay",
    "report",
    "sample",
    "series",
    "sign",
    "spec",
    "train",
    "transform",
    "verify",
]
