"""The data card: the README of a release, with the front matter that dataset hubs read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privmix.release.plan import ReleasePlan

_DESIGN_WORDS = {
    "poisson": "each record joins each row independently",
    "fixed": "each row averages the same number of records, drawn without replacement",
    "hierarchical": "each row draws a few classes first, then records of those classes",
    "classwise": "each row holds records of one class only, so its label is public",
    "random-weight": "each row is a Dirichlet-weighted sum of records drawn without replacement",
}


def data_card(plan: ReleasePlan, certificate: Mapping[str, Any]) -> str:
    """Return the card in Markdown: what the rows are, what is guaranteed, how to load and use them."""
    guarantee = certificate["guarantee"]
    extractor, offset = certificate["extractor"].get("name", "?"), f"{plan.label_offset:.6g}"
    epsilon = "infinite" if guarantee["epsilon"] is None else f"{guarantee['epsilon']:.4g}"
    warnings = "".join(f"\n> **Warning.** {text}\n" for text in certificate["warnings"])
    statements = "\n".join(f"- {text}" for text in certificate["statements"])
    classes = ", ".join(f"`{name}`" for name in plan.classes)
    centre = (
        f"\n`centre.safetensors` holds the released mean feature. Each record was clipped to norm {plan.clip_norm:g}, "
        f"the mean subtracted, and the rest clipped to {plan.residual_clip_norm:g}; do the same to new records.\n"
        if plan.centred
        else f"\nEach record was clipped to norm {plan.clip_norm:g}; do the same to records you classify.\n"
    )
    return f"""---
tags:
- differential-privacy
- mixup
configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
---
# A differentially private mixup release
{warnings}
**Guarantee: ({epsilon}, {guarantee["delta"]:g})-differential privacy, adjacency `{guarantee["adjacency"]}`,
accountant `{guarantee["accountant"]}`.** `certificate.json` has every public constant, the accounting event and an
epsilon-delta curve; `privmix verify` on this folder recomputes them.

{statements}

## What the rows are

{plan.rows} rows; {_DESIGN_WORDS[plan.design]} (mixup degree {plan.mixup_degree}). A row is not a record: it is a noisy
average of many.

| column | type | meaning |
|---|---|---|
| `x` | list of {plan.dim} float32 | mixed `{extractor}` features; noise of standard deviation {plan.noise_std_x:.6g} |
| `y` | list of {plan.num_classes} float32 | mixed one-hot labels minus {offset}; noise {plan.noise_std_y:.6g} |

Classes in order: {classes}.
{centre}
## How to use it

```python
import pandas as pd

rows = pd.read_parquet("data")          # polars, pyarrow and datasets.load_dataset("parquet", ...) read it too
```

```sh
privmix fit THIS_FOLDER --learner noise-aware-ridge --out MODEL
privmix evaluate MODEL --data YOUR_TEST_DATA --split test
```

Training as often as you like costs no further privacy.
"""
