"""What a planner assumes of records that it has not seen, and what public records say of it.

Characters that privmix renders (as pixels and through scattering), docstrings of Python's standard library through
MiniLM (a class a module; or two classes: of classes or functions, of what is private or not, of methods or not), and
scikit-learn's wine and breast cancer: what is the same for all of them within a factor is
in ``privmix.learning.data_model``, what differs by extractor in ``usual`` of each. No record here is of a dataset on
which privmix is judged. Along the axes of the scatter within classes:

* decay: of the records' variance, along axis i in proportion to (i + 4)^-decay;
* concentration: the power of that variance to which the classes' means are in proportion, such that half of what tells
  classes apart lies on as few axes as it does;
* own shapes a: exp(-a q) of the errors of a linear rule are left by classes' own scatters along q directions;
* the same of texts as releases in three stages have it: errors of the learner's linear scores alone against all of its
  scores, on a fifth of the records that is held out, at epsilon 8;
* share of the variance between classes, and the tail at which a Gaussian mixture is told apart as well as they are.

    python benchmarks/bench_planner_constants.py
"""

from __future__ import annotations

import ast
import math
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_wine

import common
from privmix.designs import ThreeStage
from privmix.designs.stages.three_learner import ThreeStageClassifier
from privmix.engine import PrivateRecords
from privmix.features import parse_features
from privmix.learning import DataModel
from privmix.learning.public_records import along_principal_axes, own_shapes
from privmix.planning import ReleaseConfig
from privmix.procedural import get_generator
from privmix.publication import RecordTransform
from privmix.releases import SecretStreams, release_to_memory

DRAWN = 4000
# Modules with so many docstrings, and how much of one is read.
FEWEST, LENGTH = 60, 200
# Into so many classes modules are dealt at random: what the number of classes alone does.
GROUPS = (2, 5, 13)
# Of the releases in three stages that say what shapes of their own bring.
RELEASES, EPSILON, DELTA, MEASURED = 3, 8.0, 1e-5, 50
SHAPED = ThreeStage(first_share=0.6, first_label_share=0.9, first_count_share=0.01)
LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}


def docstrings() -> tuple[NDArray[np.object_], dict[str, NDArray[np.int64]]]:
    """Docstrings of functions and classes of the standard library, (n, 1), and what each is of, in four ways.

    Under "modules" texts of modules with few are -1.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, tuple[str, bool, bool, bool]] = {}
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if LEFT_OUT & set(inside.parts) or inside.parts[0].startswith("config"):
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) and (
                text := ast.get_docstring(node)
            ):
                own = isinstance(node, ast.FunctionDef) and [item.arg for item in node.args.args[:1]] == ["self"]
                facts = (isinstance(node, ast.ClassDef), node.name.startswith("_"), own)
                found.setdefault(" ".join(text.split())[:LENGTH], (inside.parts[0].removesuffix(".py"), *facts))
    modules, classes, private, methods = (np.array(column) for column in zip(*found.values(), strict=True))
    _, index, counts = np.unique(modules, return_inverse=True, return_counts=True)
    kept = np.cumsum(counts >= FEWEST) - 1
    kinds = {
        "modules": np.where(counts >= FEWEST, kept, -1)[index],
        "class or function": classes.astype(np.int64),
        "private or not": private.astype(np.int64),
        "method or not": methods.astype(np.int64),
    }
    return np.array(list(found), dtype=object)[:, None], kinds


def records() -> Iterator[tuple[str, str, NDArray[Any], NDArray[np.int64]]]:
    """Public records: what they are, the extractor, features and labels."""
    for name in ("digits", "letters"):
        for side, features in ((28, "scattering"), (28, "pixels"), (8, "pixels")):
            drawn = get_generator(name, (side, side)).draw(DRAWN)
            assert drawn.y is not None
            yield f"{name}, {side} x {side}", features, parse_features(features).transform(drawn.x), drawn.y
    texts, kinds = docstrings()
    embedded = parse_features("minilm").transform(texts)
    for kind, labels in kinds.items():
        yield f"docstrings: {kind}", "minilm", embedded[labels >= 0], labels[labels >= 0]
    modules = kinds["modules"]
    for groups in GROUPS:
        dealt = np.random.default_rng(0).permutation(modules.max() + 1) % groups
        yield f"docstrings: {groups} groups of modules", "minilm", embedded[modules >= 0], dealt[modules[modules >= 0]]
    for load in (load_wine, load_breast_cancer):
        x, y = load(return_X_y=True)
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        yield load.__name__.removeprefix("load_"), "identity", x / np.linalg.norm(x, axis=1, keepdims=True), y


def measured(x: NDArray[Any], labels: NDArray[np.int64]) -> dict[str, float]:
    transform = RecordTransform(1.0, "l2", np.zeros(x.shape[1], np.float32), 0.55)
    classes = int(labels.max()) + 1
    model = DataModel.of_public_data(x.astype(np.float32), labels, classes, transform, np.random.default_rng(0))
    total = model.within + model.between
    order = np.argsort(-total)
    total, signal = total[order], (model.between / model.within)[order]
    axes = max(5, min(len(total), round(0.6 * x.shape[1])))
    places = np.log(np.arange(axes) + 4)
    decay = -float(np.polyfit(places, np.log(total[:axes]), 1)[0])
    # Signal along axis i in proportion to (i + 4)^-(decay (power - 1)): half of it lies on the first (1/2)^(1/s) of
    # all axes, s = 1 - decay (power - 1).
    half = (int(np.searchsorted(np.cumsum(signal), signal.sum() / 2)) + 1) / len(signal)
    concentration = 1 + (1 - math.log(0.5) / math.log(half)) / decay
    return {
        "records": len(x),
        "dim": x.shape[1],
        "classes": classes,
        "accuracy": model.attainable,
        "decay": decay,
        "concentration": concentration,
        "own_shapes": own_shapes(along_principal_axes(x, 256), labels, np.random.default_rng(0)),
        "between": float(model.between.sum() / total.sum()),
        "tail": model.tail,
    }


def shapes_in_releases(x: NDArray[Any], labels: NDArray[np.int64]) -> tuple[float, int]:
    """Own shapes by releases in three stages, of which each is fitted once and judged twice; and their directions."""
    order = np.random.default_rng(5).permutation(len(x))
    kept, held = np.split(order, [int(0.8 * len(x))])
    classes = tuple(map(str, range(int(labels.max()) + 1)))
    config = ReleaseConfig(len(kept), x.shape[1], classes, SHAPED, rows=1)
    plan, linear, all_of_it = config.calibrate(EPSILON, DELTA), 1, 1
    for seed in range(RELEASES):
        release = release_to_memory(
            plan,
            PrivateRecords(x[kept], labels[kept]),
            SecretStreams.from_seed(seed),
            extractor={"name": "identity"},
            input_shape=x.shape[1:],
        )
        model = ThreeStageClassifier().fit(release)
        all_of_it += int((model.predict(x[held]) != labels[held]).sum())
        model.shapes_ = np.zeros_like(model.shapes_)
        linear += int((model.predict(x[held]) != labels[held]).sum())
    # More directions than the planner counts on are not counted.
    directions = min(len(model.axes_), MEASURED)
    return math.log(linear / all_of_it) / directions, directions


def taken_of(name: str, classes: int) -> list[str]:
    """What the planner takes; a share between classes that follows from the accuracy has no value of its own."""
    values = parse_features(name).usual.of(classes).values()
    return ["-" if value is None else f"{value:.3g}" for value in values]


def main() -> None:
    found: list[dict[str, Any]] = []
    for what, name, x, y in records():
        found.append({"what": what, "features": name, **measured(x, y)})
        if name == "minilm":
            found[-1]["in_releases"], found[-1]["directions"] = shapes_in_releases(x.astype(np.float32), y)
    rows = [
        [
            run["what"],
            run["features"],
            run["classes"],
            f"{100 * run['accuracy']:.1f}",
            f"{run['decay']:.2f}",
            f"{run['concentration']:.2f}",
            f"{run['own_shapes']:+.4f}",
            f"{run['in_releases']:+.4f} ({run['directions']})" if "in_releases" in run else "-",
            f"{run['between']:.2f}",
            f"{run['tail']:.2f}",
        ]
        for run in found
    ]
    texts = [run for run in found if run["features"] == "minilm"]
    slope, level = np.polyfit(
        [math.log(26 / run["classes"]) for run in texts], [run["concentration"] for run in texts], 1
    )
    header = [
        "records",
        "features",
        "classes",
        "accuracy, %",
        "decay",
        "concentration",
        "own shapes",
        "in releases (directions)",
        "between",
        "tail",
    ]
    taken = [
        [name, str(classes), *taken_of(name, classes)]
        for name, several in (("scattering", [10]), ("pixels", [10]), ("minilm", [2, 6, 26]), ("identity", [10]))
        for classes in several
    ]
    tables = [
        common.table(header, rows),
        f"Texts by least squares: concentration {level:.2f} + {slope:.3f} log(26 / classes).",
        "What the planner takes:",
        common.table(["features", "classes", "decay", "concentration", "own shapes", "between"], taken),
    ]
    settings = {
        "characters": f"{DRAWN} of each generator, seed 0",
        "docstrings": f"the first {LENGTH} characters of each; of modules those with {FEWEST} or more. Kinds of two "
        "classes were added after forecasts for texts of two classes had been seen to be too low",
        "accuracy": "of discriminant analysis that has many records, estimated by cross-validation",
        "own shapes": "less an error; not taken for pixels: what helps characters harmed photographs, on training "
        "records of public datasets. Of texts by releases, what 26 modules gain, and for as many classes or more: of "
        "kinds of two classes some gain and some lose, and questions of six kinds lose, on their training records",
        "releases": f"{RELEASES} for each, epsilon {EPSILON:g}, delta {DELTA:g}, {SHAPED.settings()}",
    }
    common.save("planner_constants", "What the planner assumes of records", settings, found, tables)


if __name__ == "__main__":
    main()
