"""What jobs on a private dataset are asked; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix._registry import literals_of
from privmix.options import described, option, said

if TYPE_CHECKING:
    from privmix.features import Extractor

CLASSES_HELP: Final = (
    "Class list: a number K, names with commas, or @FILE with one name a line. Needed unless a schema says it."
)
DELTA_HELP: Final = (
    "Delta of (epsilon, delta)-DP: any outcome is at most e^epsilon times as likely, plus delta, if one record changes."
)
FEATURES_MODEL_HELP: Final = (
    "Your copy of the extractor's model, where it is a file or folder: none is opened unless you name it."
)
TRUST_HELP: Final = "The file of `features_model` is a program (TorchScript, .pt2): let it run."


@described
@dataclass(frozen=True, eq=False)
class Asked:
    """Of which data, at which price, for which place."""

    # Data in memory are private: no picture of an object shows them.
    data: Any = field(
        repr=False,
        metadata=said(
            "Private dataset: file, folder, pattern such as 'part-*.parquet', or address such as "
            f"s3://bucket/x; {', '.join(one['words'] for one in literals_of('privmix.data'))}, images by class, saved "
            "Hugging Face datasets."
        ),
    )
    epsilon: float = field(metadata=said("Privacy budget, epsilon."))
    delta: float = field(metadata=said("Privacy budget, delta; well below 1/n."))
    out: Path | None = option(None, "Folder to create.")
    features: str | Extractor = option(
        "pixels",
        "Public extractor: pixels, scattering, efficientnet (photographs, by a network that has seen ImageNet's; "
        "scattering:ycbcr,mirror without one), identity, minilm (texts; minilm:3+4+5+6 for kinds of text), text:MODEL, "
        "vision:MODEL, tabular:SPEC.json or module:FILE. MODEL is a local folder or OWNER/NAME on the hub.",
    )
