"""How sharp the minimum is in which a trained model lies, on data that are known to be public."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privmix.errors import InvalidInput, in_terms_of
from privmix.jobs.columns import Columns
from privmix.jobs.models import Model, model_in
from privmix.jobs.public_data import pool_options, refuse_charged
from privmix.research.curvature.hessian import Curvature, curvature
from privmix.training import PublicData, TrainedModel
from privmix.training.examples import open_source
from privmix.training.trained import shaped


@dataclass(frozen=True)
class Sharpness:
    """Figures of the Hessian of a model's loss.

    Attributes:
        figures: eigenvalues and trace.
        records: of the public data.
        named: by the model's certificate as the public data that it was trained with, or None.
    """

    figures: Curvature
    records: int
    named: str | None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**self.figures.to_dict(), "records": self.records, "named": self.named}


def sharpness(
    model: Model | str | Path,
    public: Any,
    *,
    columns: Columns | None = None,
    features_model: str | Path | None = None,
    trust_features_model: bool = False,
    module: Any = None,
    ledger: str | None = None,
    iterations: int = 100,
    probes: int = 20,
) -> Sharpness:
    """Eigenvalues and trace of the Hessian of a trained model's loss on PUBLIC data (Park et al. 2024, table 4).

    Such figures of private records would tell of them, and no accountant has priced that. So the data must be those
    that the model's certificate names as public; or a ledger, which knows the files that have a budget, must not know
    theirs.

    Args:
        model: a trained model, or its folder.
        public: labelled public data: file, folder, pattern, address, or in memory.
        columns: what is declared of columns and images.
        features_model, trust_features_model, module: as for :func:`privmix.evaluate`.
        ledger: that knows the private data: an address. It recognises files that were charged to it, byte by byte, and
            not the same records saved anew: see :func:`privmix.jobs.public_data.refuse_charged`.
        iterations, probes: see :func:`privmix.research.curvature.hessian.curvature`.

    Raises:
        InvalidInput: the data are not known as public, or the ledger knows no data at all; or they don't fit the model,
            or it was not trained by privmix train.
        StorageError: something can't be read.
    """
    chosen = model_in(model, features_model, trust_features_model, module)
    if not isinstance(chosen.classifier, TrainedModel):
        raise InvalidInput("model", "fitted on a release", "one that privmix train wrote")
    trained: TrainedModel = chosen.classifier
    facts, extractor = trained.facts_, chosen.extractor
    options = pool_options(extractor, columns or Columns())
    if ledger is not None:
        with in_terms_of(part="public"):
            source = open_source(public, facts.classes, "train", {"input_shape": facts.input_shape, **options})
        refuse_charged("public", public, source, ledger)
    with in_terms_of(part="public"):
        data = PublicData.open(public, extractor, facts.classes, input_shape=facts.input_shape, **options)
    known = trained.certificate["public_data"]
    name = next((name for name, digest in known.items() if digest == data.fingerprint()), None)
    if name is None and ledger is None:
        allowed = "data that the model's certificate names as public, or `ledger`: private records would show in it"
        raise InvalidInput("public", "other data", allowed)
    inputs = PublicData(shaped(data.x, trained.network, facts), data.targets)
    trained.network.eval()
    figures = curvature(trained.network, inputs, iterations=iterations, probes=probes)
    return Sharpness(figures, data.size, name)
