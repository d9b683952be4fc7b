"""AIM, MST or Tab-PE by its authors' own files on a table of states: a script for an environment of its own.

    pip install mbi==2.0.0 pandas scipy matplotlib
    git clone https://github.com/ryan112358/private-pgm
    python benchmarks/rivals/tables.py private-pgm aim STATES.csv DOMAIN.json EPSILON DELTA SEED OUT.csv [OPTIONS]

STATES.csv holds a table of whole numbers, DOMAIN.json the number of states of each column. OUT.csv gets the rows,
OUT.csv.json the seconds of fit and draw. OPTIONS is JSON: ``degree`` is the workload's (2, as their script has it), all
else goes to AIM. Their mechanisms/aim.py and mst.py call three names of mbi 1 that version 2 renamed; ``renamed``
lends those. The estimator is the same: mirror descent with Armijo's line search, at their number of steps.

Tab-PE (``tab-pe``) takes a clone of https://github.com/microsoft/DPSDA, torch, omegaconf and generalimport. Its setting
is that of its authors' example on Adult, 1,000 rows after 29 steps. It takes the classes' true shares as public.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

MAX_CELLS = 10_000  # as in their script


def renamed() -> Any:
    import mbi

    class Dataset(mbi.Dataset):
        """A table made from a frame, as in version 1."""

        def __init__(self, df: pd.DataFrame, domain: Any, weights: Any = None) -> None:
            super().__init__({name: df[name].to_numpy(np.int64) for name in domain}, domain, weights)

        @property
        def df(self) -> pd.DataFrame:
            return frame(self)

    mbi.Dataset, mbi.estimation.mirror_descent = Dataset, mbi.estimation.MirrorDescent().estimate
    mbi.dataset.Dataset.df = property(frame)  # MST reads it of the rows that a model draws
    mbi.Domain.attrs = property(lambda domain: domain.attributes)
    return mbi


def frame(data: Any) -> pd.DataFrame:
    return pd.DataFrame(dict(data.data))


def private_evolution(
    checkout: str, table: pd.DataFrame, sizes: dict[str, int], epsilon: float, delta: float
) -> pd.DataFrame:
    sys.path.insert(0, checkout)
    # Parts for images and texts need packages that tables do not.
    for name in (f"{area}.{kind}" for area in ("api", "data", "embedding") for kind in ("image", "text")):
        part = types.ModuleType(f"pe.{name}")
        part.__getattr__ = lambda _: None  # type: ignore[method-assign]
        sys.modules[f"pe.{name}"] = part
    from pe.api import TabularAPI
    from pe.data import TabularColumnType, TabularCSV
    from pe.embedding.tabular import TabularEmbedding
    from pe.histogram import NearestNeighbors
    from pe.population import CompositePopulation, PEPopulation
    from pe.runner import PE

    *features, label = sizes
    with tempfile.TemporaryDirectory() as folder:
        data, metadata = Path(folder) / "data.csv", Path(folder) / "metadata.json"
        table.to_csv(data, index=False)
        kinds = {"cat_columns": features, "int_columns": [], "float_columns": [], "label_columns": [label]}
        metadata.write_text(json.dumps(kinds))
        private = TabularCSV(str(data), str(metadata))
    info = {name: {"categories": list(range(sizes[name])), "type": TabularColumnType.CATEGORICAL} for name in features}
    steps = 30
    api = TabularAPI(info, mutation_rate_init=0.5, mutation_rate_final=0.01, gamma=0.2, num_iterations=steps)
    first = PEPopulation(api, histogram_threshold=0, next_variation_api_fold=1, selection_mode="sample")
    later = PEPopulation(
        api, initial_variation_api_fold=3, next_variation_api_fold=3, keep_selected=True, selection_mode="rank"
    )
    population = CompositePopulation(populations=[first] * 5 + [later] * (steps - 5))
    histogram = NearestNeighbors(TabularEmbedding(info=info), mode="L2", lookahead_degree=0, backend="torch")
    found = PE(priv_data=private, population=population, histogram=histogram).run(
        num_samples_schedule=[1000] * steps, delta=delta, epsilon=epsilon, save_checkpoint=False
    )
    kept = found.data_frame[found.data_frame["PE.VARIATION_API_FOLD_ID"] == -1]
    rows = pd.DataFrame(kept["PE.TABULAR"].tolist(), columns=features)
    # Classes are numbered in the order of their states.
    return rows.assign(**{label: kept["PE.LABEL_ID"].to_numpy()}).astype(int)


def main(
    checkout: str, mechanism: str, states: str, domain: str, epsilon: str, delta: str, seed: str, out: str,
    options: str = "{}",
) -> None:  # fmt: skip
    table, sizes, given = pd.read_csv(states), json.loads(Path(domain).read_text()), json.loads(options)
    np.random.seed(int(seed))  # noqa: NPY002 - both draw from it
    if mechanism != "tab-pe":
        sys.path.insert(0, str(Path(checkout) / "mechanisms"))
        mbi = renamed()
        data, degree = mbi.Dataset(table, mbi.Domain.fromdict(sizes)), given.pop("degree", 2)
    if mechanism == "aim":
        import quick_inference
        from aim import AIM

        names = list(sizes)
        quick_inference.check(data.domain, data, [tuple(names[at : at + 2]) for at in range(3)])
        mbi.estimation.mirror_descent = quick_inference.estimate
    clock, processor = time.perf_counter(), time.process_time()
    if mechanism == "tab-pe":
        rows = private_evolution(checkout, table, sizes, float(epsilon), float(delta))
    elif mechanism == "aim":
        workload = [(one, 1.0) for one in itertools.combinations(sizes, degree) if data.domain.size(one) <= MAX_CELLS]
        rows = frame(AIM(float(epsilon), float(delta), **given).run(data, workload)[1])
    else:
        from mst import MST

        rows = frame(MST(data, float(epsilon), float(delta)))
    rows.to_csv(out, index=False)
    took = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}
    Path(f"{out}.json").write_text(json.dumps(took))


if __name__ == "__main__":
    main(*sys.argv[1:])
