"""The model card, from a trained model's certificate alone."""

from __future__ import annotations

from typing import Final

from privmix.certificate.about import privacy_metadata
from privmix.certificate.assessment import SOURCE, markdown
from privmix.certificate.certificate import Certificate
from privmix.features.spec import title_of
from privmix.rounding import exact, rounded_up
from privmix.training.config import OWN

CARD_FILE: Final = "MODEL_CARD.md"
"""In the model's folder. Verification compares its text: a change needs editions, as :mod:`privmix.releases.card`."""
_OWN: Final = "a network of its maker's own, whose code is not here: its weights need the module"


def model_card(certificate: Certificate) -> str:
    """Return the card in Markdown, with the front matter that model hubs read."""
    guarantee, settings = certificate["guarantee"], certificate["settings"]
    warnings = "".join(f"\n> **Warning.** {text}\n" for text in certificate.warnings)
    statements = "\n".join(f"- {text}" for text in certificate["statements"])
    classes = ", ".join(f"`{name}`" for name in settings["classes"])
    network = settings["network"]["architecture"]
    use = "privmix predict MODEL --data YOUR_RECORDS --out predictions.csv\nprivmix export MODEL --out net.pt2"
    if network == OWN:
        use = (
            "privmix predict MODEL --module torch:FILE.py:NAME --data YOUR_RECORDS --out predictions.csv\n"
            "privmix export MODEL --module torch:FILE.py:NAME --out net.pt2"
        )
    epsilon = rounded_up(certificate.epsilon, 4)
    return f"""---
library_name: privmix
tags:
- differential-privacy
- dp-sgd
{privacy_metadata(guarantee, certificate.unit)}---
# A model trained with differential privacy
{warnings}
**Guarantee: ({epsilon}, {exact(guarantee["delta"])})-differential privacy, adjacency {certificate.relation},
accountant `{guarantee["accountant"]}`.** `certificate.json` has every public constant and the accounting event;
`privmix verify` recomputes them.

{statements}

## What holds, what does not, what is unknown

The questions are those of {SOURCE}.

{markdown(certificate["assessment"])}

## What it is

Network: {_OWN if network == OWN else f"`{network}`"}. It takes {title_of(settings["extractor"])} features of inputs of
shape {" x ".join(map(str, settings["input_shape"]))}. Classes in order: {classes}.

## How to use it

```sh
privmix verify MODEL
{use}
```

The exported file loads without
privmix: `torch.export.load("net.pt2").module()`.
"""
