"""The data card: the README of a release, with the front matter that dataset hubs read, and the planner's picture."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from privmix.certificate.about import about_of, in_markdown, licence_metadata, privacy_metadata
from privmix.certificate.assessment import SOURCE, markdown
from privmix.errors import InvalidInput
from privmix.features.spec import title_of
from privmix.mechanisms.plan import relation_of, unit_of
from privmix.planning.choice import forecast_of
from privmix.planning.table import has_pairs
from privmix.plans.parts import Part, ReleasedArray, SumDesign, SumPlan
from privmix.plans.plan import Plan
from privmix.plans.registry import made_by
from privmix.plans.rows import RowDesign
from privmix.publication.second_moments import from_arrays, shares_in_words, to_arrays
from privmix.rounding import exact, rounded_down, rounded_up

MOST_BYTES: Final = 2**17
# No brackets in the DOCTYPE: an internal subset could define entities.
_HEAD: Final = re.compile(
    r'\s*(<\?xml version="1\.0" encoding="utf-8" standalone="no"\?>)?\s*(<!DOCTYPE svg [^>\[\]]*>)?\s*'
)
# The one style sheet that matplotlib writes: other CSS could load resources.
_STYLE: Final = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'
# Values hold no `<`, `>` or `&`: neither a tag nor an entity can hide in them.
_TAG: Final = re.compile(r"\s+|</?(svg|defs|g|path|use|clipPath|rect)((?:\s+[a-zA-Z:-]+=\"[^\"<>&]*\")*)\s*/?>")
_ATTRIBUTE: Final = re.compile(r"\s+([a-zA-Z:-]+)=\"([^\"]*)\"")
_NAMES: Final = frozenset(
    ("id", "d", "style", "transform", "x", "y", "width", "height", "viewBox", "version", "clip-path", "xlink:href",
     "xmlns", "xmlns:xlink")
)  # fmt: skip
_PATH: Final = re.compile(r"[MLCQAZHVSTmlcqazhvst0-9eE.,+\-\s]*")
_EXTRAS: Final = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)


def plain_picture(svg: bytes) -> bytes:
    """Strip comments and metadata from a matplotlib drawing, as :func:`check_picture` requires."""
    return _EXTRAS.sub("", svg.decode("utf-8")).encode()


def check_picture(svg: bytes, name: str) -> None:
    """Raise :class:`InvalidInput` unless the bytes are an SVG of shapes alone.

    Formal guarantees:
        * elements are shapes and their groups, attributes are geometry and style, so nothing in it runs;
        * references point into the picture itself;
        * it has at most 128 KiB and is read in linear time. Numbers may be anything: they are not compared.
    """
    allowed = "an SVG of shapes alone"
    try:
        text = svg.decode("utf-8") if len(svg) <= MOST_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    head = _HEAD.match(text)
    place = head.end() if head else 0
    if not text.startswith("<svg", place):
        raise InvalidInput(name, "something else", allowed)
    while place < len(text):
        if text.startswith(_STYLE, place):
            place += len(_STYLE)
            continue
        found = _TAG.match(text, place)
        if found is None:
            raise InvalidInput(name, "other elements", allowed)
        for key, value in _ATTRIBUTE.findall(found.group(2) or ""):
            # A reference out of the picture would show its author who opens the card.
            inside = value.startswith("#") if key == "xlink:href" else "url(" not in value.replace("url(#", "")
            if key not in _NAMES or not inside or (key == "d" and not _PATH.fullmatch(value)):
                raise InvalidInput(name, key, allowed)
        place = found.end()


# Names of features that a card lists.
MOST_NAMES: Final = 100


EDITIONS: Final[tuple[dict[str, bool], ...]] = (
    {},
    {"plain": False},
    {"plain": False, "titled": False},
    *({"plain": False, "titled": False, **one} for one in ({"sampled": False}, {"metadata": False})),
    *({"plain": False, "titled": False, **one} for one in ({"baseline": False}, {"before": True})),
)
"""How cards are written, and how earlier builds wrote them: arguments of :func:`data_card`, the newest first."""


def data_card(
    plan: Plan,
    certificate: Mapping[str, Any],
    *,
    before: bool = False,
    baseline: bool = True,
    metadata: bool = True,
    sampled: bool = True,
    titled: bool = True,
    plain: bool = True,
    shares: Sequence[str] = (),
) -> str:
    """Return the card in Markdown: what the rows are, the guarantee, loading and use."""
    # Cards of earlier builds: before (without feature names and an example for scikit-learn), baseline (a model's
    # baseline). metadata (the guarantee for programs; never without baseline), sampled (how rows of a table are made;
    # never without metadata). titled (names the design; mixup only where rows mix records, earlier stated of all).
    # plain (reading without privmix). shares (of the classes, in words; earlier cards have none).
    guarantee = certificate["guarantee"]
    epsilon = "infinite" if guarantee["epsilon"] is None else f"{rounded_up(guarantee['epsilon'], 4)}"
    warnings = "".join(f"\n> **Warning.** {text}\n" for text in certificate["warnings"])
    statements = "\n".join(f"- {text}" for text in certificate["statements"])
    extractor = title_of(certificate["extractor"])
    relation = relation_of(f"`{guarantee['adjacency']}`", unit_of(plan))
    rows = made_by(plan).card(plan, extractor)
    table = sampled and metadata and baseline and not before and has_pairs(plan)
    table = table and certificate["extractor"].get("name") == "tabular"
    learner = made_by(plan).learner
    sample = _SAMPLE + _ROWS * any(item["file"] == "rows.csv" for item in certificate["files"])
    labelled = plan.num_classes > 1
    use = _use(learner) if labelled else "## How to use it\n"
    use = _names(certificate, plan.dim) + use + sample * table + _plain(plan, certificate) * plain
    about, choice = about_of(certificate), certificate.get("choice")
    classes = f"Classes in order: {', '.join(f'`{name}`' for name in plan.classes)}.\n" * labelled
    expected = _baseline(plan, choice, titled, shares) if labelled and baseline and not before else ""
    kind = f"A differentially private release (design: {plan.design})"
    if not titled:
        kind = "A differentially private mixup release"
    return f"""---
{_front_matter(about)}tags:
- differential-privacy
{"" if titled and not mixes(plan) else "- mixup" + chr(10)}configs:
- config_name: default
  data_files:
  - split: train
    path: data/*.parquet
{privacy_metadata(guarantee, unit_of(plan)) if metadata and baseline and not before else ""}---
# {in_markdown(about["title"]) if "title" in about else kind}
{_about(about, kind)}{warnings}
**Guarantee: ({epsilon}, {exact(guarantee["delta"])})-differential privacy, adjacency {relation},
accountant `{guarantee["accountant"]}`.** `certificate.json` has every public constant, the accounting event and an
epsilon-delta curve; `privmix verify` on this folder recomputes them.

{statements}

## What holds, what does not, what is unknown

The questions are those of {SOURCE}.

{markdown(certificate["assessment"])}

## What the rows are

{rows}
{classes}{_preparation(plan)}
{_use_before(learner) if before else use}
Training as often as you like costs no further privacy.
{expected}{_choice(choice)}"""


def _use_before(learner: str) -> str:
    return f"""## How to use it

```python
import pandas as pd

rows = pd.read_parquet("data")          # polars, pyarrow and datasets.load_dataset("parquet", ...) read it too
```

```sh
privmix fit THIS_FOLDER --learner {learner} --out MODEL
privmix evaluate MODEL --data YOUR_TEST_DATA --split test
```
"""


def _names(certificate: Mapping[str, Any], dim: int) -> str:
    names = certificate.get("feature_names")
    if not names:
        return f'Features have no names of their own: "feature 0" to "feature {dim - 1}", in the order of `x`.\n\n'
    # As JSON: no name can end the block that it stands in.
    shown = "\n".join(json.dumps(name, ensure_ascii=False) for name in names[:MOST_NAMES])
    more = "" if len(names) <= MOST_NAMES else f" The first {MOST_NAMES} of {len(names)}:"
    return f"""Features, in the order of `x`; `certificate.json` and the metadata of the Parquet files have them as
`feature_names`.{more}

```
{shown}
```

"""


def _use(learner: str) -> str:
    return f"""## How to use it

With privmix, from raw records to classes:

```sh
privmix fit THIS_FOLDER --learner {learner} --out MODEL
privmix evaluate MODEL --data YOUR_TEST_DATA --split test
privmix predict MODEL --data YOUR_RECORDS --out predictions.csv
```

With a learner of your own, such as scikit-learn's:

```python
import privmix as pm
from sklearn.linear_model import LogisticRegression

release = pm.load("THIS_FOLDER")
records, labels = release.sample()  # drawn from the release, with the classes that its learner gives them
model = LogisticRegression(C=100, max_iter=1000).fit(records, labels)
predicted = model.predict(release.transform(YOUR_RECORDS))
```

Learners that know nothing of noise do worse on the rows themselves: they take their noise for scatter and soft labels
for hard ones. And every learner of them must see records transformed as those of the release were. `release.to_frame()`
gives the rows with names, `pandas.read_parquet("data")` without; polars, pyarrow and
`datasets.load_dataset("parquet", ...)` read the files too.
"""


_SAMPLE: Final = """
Rows in the columns of the table that this is a release of, with names, types and units as they were declared:

```sh
privmix sample THIS_FOLDER --out rows.csv
```

They are made of the released numbers alone, and no row is anybody's record. The command says which pairs of columns
it met; what three columns have in common is in no released number.
"""


_ROWS_READ: Final = (
    'x, y = (np.stack(rows[name].to_numpy()) for name in ("x", "y"))  # a row of features, a row of classes'
)


def _plain(plan: Plan, certificate: Mapping[str, Any]) -> str:
    """Program that reads the release without privmix; no text in it is the owner's."""
    names = 'names = json.loads((folder / "certificate.json").read_text())["feature_names"]\n'
    centre = """content = (folder / "centre.safetensors").read_bytes()
centre = np.frombuffer(content, "<f4", offset=8 + int.from_bytes(content[:8], "little"))
"""
    # `repr` keeps all digits: a rounded bound would transform records otherwise than the release did.
    clipped = f"clip(features, {plan.clip_norm!r})"
    if plan.centred:
        clipped = f"clip({clipped} - centre, {plan.residual_clip_norm!r})"
    return f"""
Without privmix, by NumPy and PyArrow:

```python
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

folder = Path("THIS_FOLDER")
{names if certificate.get("feature_names") else ""}rows = pq.read_table(folder / "data")
{_ROWS_READ if plan.num_classes > 1 else 'x = np.stack(rows["x"].to_numpy())'}
{centre if plan.centred else ""}

def clip(records, bound):
    lengths = np.linalg.norm(records, {1 if plan.norm == "l1" else 2}, axis=1, keepdims=True)
    return records * (bound / np.maximum(lengths, bound))


def transform(features):  # of records of your own: (n, features), in the order above
    return {clipped}
```
"""


def released_shares(plan: Plan, beside: Any) -> tuple[str, ...]:
    """Return sizes of the classes in words, by the stored form of released arrays."""
    found = None if beside is None else from_arrays(plan, to_arrays(plan, beside))
    return shares_in_words(plan, found)


_ROWS: Final = """
`rows.csv` has such rows, made by the owner in the same way. `privmix verify` checks its hash, not its content.
"""


def mixes(plan: Plan) -> bool:
    """Whether released rows are sums of several records, as in mixup."""
    return issubclass(made_by(plan), RowDesign)


def arrays(plan: Plan) -> dict[str, str]:
    """Return what is released in addition to rows, in words, by file."""
    design = made_by(plan)
    if not (isinstance(plan, SumPlan) and issubclass(design, SumDesign)):
        return {}
    return {design.file: "; ".join(map(_array, plan.arrays))}


def _array(one: ReleasedArray) -> str:
    noise = f", Gaussian noise of standard deviation {one.noise_std:.6g}" if isinstance(one, Part) else ""
    return f"{one.name}, float32, {' x '.join(map(str, one.stored_shape))}: {one.meaning}{noise}"


def _front_matter(about: Mapping[str, str]) -> str:
    """Fields of the owner's words that dataset hubs read."""
    # Quoted as in JSON, which is YAML: a text of the owner's cannot add a field.
    lines = [f"pretty_name: {json.dumps(about['title'], ensure_ascii=False)}"] if "title" in about else []
    if "licence" in about:
        lines += licence_metadata(about["licence"]).splitlines()
    if "licence_file" in about:
        lines.append(f"license_link: {about['licence_file']}")
    return "".join(f"{line}\n" for line in lines)


def _about(about: Mapping[str, str], kind: str) -> str:
    """Return the owner's words, and whose they are."""
    if not about:
        return ""
    said = [f"- {name.replace('_', ' ')}: {in_markdown(text)}" for name, text in about.items() if name != "title"]
    lines = "\n".join(said)
    first = f"{kind}. Title and the lines below are" if "title" in about else "These are"
    return f"\n{first} the owner's words, and nobody checked them.\n\n{lines}\n"


def _preparation(plan: Plan) -> str:
    if plan.centred:
        return (
            "\n`centre.safetensors` holds the released mean feature. "
            f"Each record was clipped to norm {plan.clip_norm:g}, the mean subtracted, "
            f"and the rest clipped to {plan.residual_clip_norm:g}; do the same to new records.\n"
        )
    records = "records you classify" if plan.num_classes > 1 else "new records"
    return f"\nEach record was clipped to norm {plan.clip_norm:g}; do the same to {records}.\n"


def _baseline(plan: Plan, choice: Mapping[str, Any] | None, titled: bool, shares: Sequence[str]) -> str:
    """Accuracy to expect, and to beat: from the plan and public or released numbers, and from no record."""
    count = len(plan.classes)
    least = rounded_down(100 / count, 3)
    said = "This card holds no forecast of its accuracy." if titled else "No forecast was made of its accuracy."
    if choice:
        said = f"The planner's forecast, from public facts alone: {forecast_of(choice, choice['chosen'])}."
    # A block: names of classes are the owner's, and no markup.
    told = f"\n```text\n{chr(10).join(shares)}\n```\n" if shares else ""
    return f"""
## What to expect of it

{said} How a model does on real
records is not in this card, since such figures would tell of them.

Naming the same class for every record takes no model. It is right on the share of the most frequent class: at least
{least}% of the records with {count} classes, and more where classes differ in size. A model has to beat that on records
of your own: `privmix evaluate` prints it beside accuracy, balanced accuracy, recall of each class, log loss and, of two
classes, AUC, where asked also by group.
{told}"""


def _choice(choice: Mapping[str, Any] | None) -> str:
    if not choice:
        return ""
    reasons = "\n".join(f"- {text}" for text in choice["reasons"])
    return f"""
## Why this design

{reasons}

![Predicted accuracy against epsilon](predictions.svg)
"""
