"""Fill in the figures of docs' pages from the runs under benchmarks/results: ``python -m docs._site.figures``.

A figure in a page is a comment with an expression, the value, and an empty comment; readers see the value alone:

    <!-- mean("utility", dataset="mnist", method="ps-ridge-centred", epsilon=1) -->96.4<!-- -->

The expression names the facts that its runs have in common. No figure is typed, and no figure outlives its runs. An
expression holds neither ``|`` nor ``--``, and no line starts with one. README's lines are too short for expressions:
readme.txt has its results with them. The table of layers follows from their READMEs and from tests/test_layering.py.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from scipy.stats import t as student
from tests.test_layering import ALLOWED, SOURCE

DOCS = Path(__file__).parents[1]
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("reproductions/*.md")])
RESULTS = DOCS.parent / "benchmarks" / "results"
FIGURE = re.compile(r"<!-- (?P<expression>(?:(?!-->)[^\n])+?) -->(?P<value>(?:(?!<!--)[^\n])*)<!-- -->")


@cache
def results(name: str) -> Any:
    kept = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return kept if isinstance(kept, list) else kept["results"]


def chosen(name: str, **facts: Any) -> list[dict[str, Any]]:
    """Runs of a record that have these facts.

    Raises:
        ValueError: there are none: the record has changed, or the page asks for what was not run.
    """
    kept = results(name)
    runs = kept if isinstance(kept, list) else kept["runs"]
    found = [run for run in runs if all(run.get(key) == value for key, value in facts.items())]
    if not found:
        raise ValueError(f"{name}: no run has {facts}")
    return found


def percent(value: float) -> float:
    """An accuracy in percent, however its record has it."""
    return value if value > 1 else 100 * value


def values(name: str, key: str, **facts: Any) -> list[Any]:
    """A figure of each run; a slash in its key leads into a part of the run."""
    return [reduce(lambda found, place: found[place], key.split("/"), run) for run in chosen(name, **facts)]


def average(name: str, runs: int, key: str = "accuracy", **facts: Any) -> float:
    """Mean of as many runs as the page states; of more or fewer it would be another sentence."""
    found = values(name, key, **facts)
    if len(found) != runs:
        raise ValueError(f"{name}: {len(found)} runs have {facts}, the page states {runs}")
    return statistics.fmean(found)


def level(name: str, runs: int, key: str = "accuracy", **facts: Any) -> str:
    """The mean alone, in percent, where the text has the number of runs."""
    return f"{percent(average(name, runs, key, **facts)):.1f}"


def mean(name: str, key: str = "accuracy", **facts: Any) -> str:
    """Mean, least and most, number of runs."""
    found = [percent(value) for value in values(name, key, **facts)]
    if len(found) == 1:
        return f"{found[0]:.1f} (1 run)"
    return f"{statistics.fmean(found):.1f} ({min(found):.1f} to {max(found):.1f}; {len(found)} runs)"


def gain(name: str, better: Mapping[str, Any], than: Mapping[str, Any], key: str = "accuracy", **facts: Any) -> str:
    """Points by which one beats the other on the same seeds, with a 95% interval (Student's t)."""
    one, other = ({run["seed"]: percent(run[key]) for run in chosen(name, **facts, **side)} for side in (better, than))
    differences = [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
    if len(differences) < 2:
        raise ValueError(f"{name}: {better} and {than} have no two seeds in common")
    middle = statistics.fmean(differences)
    half = student.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{middle:+.2f} ({middle - half:+.2f} to {middle + half:+.2f}; {len(differences)} pairs)"


def poisoned(study: str, defence: str) -> str:
    """How often poisons reached their goal."""
    run = next(run for run in results("poisoning")["studies"][study] if run["defence"] == defence)
    return f"{100 * run['share']:.0f}% ({run['trials']} trials)"


def hits(study: str, defence: str) -> str:
    """Trials in which poisons reached their goal, of all."""
    facts = {"part": "rows", "study": study, "defence": defence}
    return f"{first('poisoning', 'successes', **facts)} of {first('poisoning', 'trials', **facts)}"


def audited(name: str, key: str) -> str:
    """An epsilon of an audit: what is priced rounded up, what is proven rounded down."""
    value = results("audit")[name][key]
    rounded = math.floor(value * 100) / 100 if key == "proven_epsilon" else math.ceil(value * 100 - 1e-9) / 100
    return f"{rounded:g}"


def attacked(attack: str, **facts: Any) -> str:
    """Mean area under the curve of a membership attack, over the attacked models."""
    values = [run["attacks"][attack]["auc"][0] for run in chosen("membership", **facts)]
    return f"{statistics.fmean(values):.3f} ({len(values)} models)"


def first(name: str, key: str, part: str | None = None, **facts: Any) -> Any:
    """A figure of the one entry that has these facts."""
    runs = results(name) if part is None else results(name)[part]
    found = [run[key] for run in runs if all(run.get(fact) == value for fact, value in facts.items())]
    if len(found) != 1:
        raise ValueError(f"{name}: {len(found)} entries have {facts}")
    return found[0]


MEANS = (average, level, mean, gain, statistics.fmean, statistics.median)
HELPERS = {helper.__name__: helper for helper in (*MEANS, results, hits, poisoned, audited, attacked, first)}


def filled(text: str) -> str:
    """Return a page with the value of every figure as the runs have it."""
    environment = Environment(undefined=StrictUndefined)

    def value(match: re.Match[str]) -> str:
        found = environment.compile_expression(match["expression"], undefined_to_none=False)(**HELPERS)
        return f"<!-- {match['expression']} -->{found}<!-- -->"

    return FIGURE.sub(value, text)


def with_results(text: str) -> str:
    """Return README with its results as the runs have them."""
    found = FIGURE.sub(lambda match: match["value"], filled((Path(__file__).parent / "readme.txt").read_text("utf-8")))
    return re.sub(r"(?<=## Results\n).*?(?=## Next)", lambda _: found, text, count=1, flags=re.DOTALL)


def role_of(layer: str) -> str:
    """Return the role of a layer, by the first sentence of its README."""
    text = (SOURCE / layer / "README.md").read_text(encoding="utf-8")
    if not (found := re.match(rf"# {layer}\n\nThis layer ([^.]+)\.\n\n", text)):
        raise ValueError(f"{layer}/README.md: begin with '# {layer}', then one sentence, 'This layer ...'")
    return found[1]


def imports_of(layer: str) -> str:
    """Return the layers that a layer may import; with most of those above it, the exceptions."""
    above, allowed = list(ALLOWED)[: list(ALLOWED).index(layer)], ALLOWED[layer]
    missing = [f"`{name}`" for name in above if name not in allowed]
    if len(allowed) <= len(missing) or not allowed <= {*above}:
        return ", ".join(f"`{name}`" for name in sorted(allowed)) or "nothing"
    return f"all above except {', '.join(missing)}" if missing else "all above"


def with_layers(text: str) -> str:
    """Return the page on the architecture with its table of layers, in the order of ``ALLOWED``."""
    rows = [
        f"| [`{name}`](../src/privmix/{name}/README.md) | {role_of(name)} | {imports_of(name)} |" for name in ALLOWED
    ]
    return re.sub(r"(?<=\| layer \| does \| may import \|\n\|---\|---\|---\|\n)(\|.*\n)*", "\n".join([*rows, ""]), text)


def main() -> None:
    """Write the pages whose figures have changed."""
    others = [(DOCS.parent / "README.md", with_results), (DOCS / "design.md", with_layers)]
    for page, fill in [*((page, filled) for page in PAGES), *others]:
        text = page.read_text(encoding="utf-8")
        if (new := fill(text)) != text:
            page.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
