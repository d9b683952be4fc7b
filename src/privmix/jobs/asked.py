"""What jobs on a private dataset are asked, and how an option says what it is; importing this takes no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix._registry import told as told_by

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


def told(default: Any, text: str, panel: str | None = None, **more: str) -> Any:
    """A field of a dataclass that says of itself what its command teaches.

    Args:
        default: of the field.
        text: its help; other fields stand between backticks.
        panel: under which help shows it.
        more: metadata, as :mod:`privmix.cli.verb` reads it.
    """
    return field(default=default, metadata={"help": text, **({"panel": panel} if panel else {}), **more})


@dataclass(frozen=True, eq=False)
class Asked:
    """Of which data, at which price, for which place.

    Attributes:
        data: the private dataset: file, folder, pattern, address, or in memory; see :func:`privmix.data.open_dataset`.
        epsilon, delta: the target.
        out: the folder that is made; None makes none.
        features: the public extractor, or its name.
    """

    # Data in memory are private: no picture of an object shows them.
    data: Any = field(
        repr=False,
        metadata={
            "help": "Private dataset: file, folder, pattern such as 'part-*.parquet', or address such as "
            f"s3://bucket/x; {', '.join(said['words'] for said in told_by('privmix.data'))}, images by class, saved "
            "Hugging Face datasets."
        },
    )
    epsilon: float = field(metadata={"help": "Privacy budget, epsilon."})
    delta: float = field(metadata={"help": "Privacy budget, delta; well below 1/n."})
    out: Path | None = told(None, "Folder to create.")
    features: str | Extractor = told(
        "pixels",
        "Public extractor: pixels, scattering, efficientnet (photographs, by a network that has seen ImageNet's; "
        "scattering:ycbcr,mirror without one), identity, minilm (texts), text:MODEL, vision:MODEL, tabular:SPEC.json "
        "or module:FILE. MODEL is a local folder or OWNER/NAME on the hub.",
    )
