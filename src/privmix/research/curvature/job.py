"""How sharp the minimum is in which a trained model lies, on data that are known to be public."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privmix.errors import InvalidInput, in_terms_of
from privmix.jobs.columns import Columns
from privmix.jobs.models import Model, model_in
from privmix.jobs.public_data import pool_options
from privmix.research.charged import refuse_charged
from privmix.research.curvature.hessian import Curvature, curvature
from privmix.shown import Shown
from privmix.training.examples import PublicData, open_source
from privmix.training.trained import TrainedModel, shaped


@dataclass(frozen=True, repr=False)
class SharpnessResult(Shown):
    """Figures of the Hessian of a model's loss; `named`: facts about the public data from its certificate."""

    figures: Curvature
    records: int
    named: str | None

    def shown(self) -> tuple[str, Mapping[str, object]]:
        figures = self.figures
        return f"Sharpness on {self.records:,} public records", {
            "largest eigenvalue": figures.eigenvalues[0],
            "over the fifth": figures.ratio,
            "trace": f"{figures.trace:.4g} (standard error {figures.trace_error:.2g})",
        }

    def to_dict(self) -> dict[str, Any]:
        return {**self.figures.to_dict(), "records": self.records, "named": self.named}


def sharpness(
    model: Model | str | Path,
    public: Any,
    *,
    columns: Columns | None = None,
    features_model: str | Path | None = None,
    module: Any = None,
    ledger: str | None = None,
    iterations: int = 100,
    probes: int = 20,
) -> SharpnessResult:
    """Eigenvalues and trace of the Hessian of a trained model's loss on PUBLIC data (Park et al. 2024, table 4)."""
    # Such figures of private records would reveal them, and no accountant prices that. So the data must be those
    # that the model's certificate names as public; or a ledger, which recognises charged files byte by byte, must
    # not know them.
    chosen = model_in(model, features_model, module)
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
    return SharpnessResult(figures, data.size, name)
