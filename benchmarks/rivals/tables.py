"""AIM or MST by its authors' own files on a table of states: a script for an environment with mbi 2.0 of PyPI.

    pip install mbi==2.0.0 pandas scipy matplotlib
    git clone https://github.com/ryan112358/private-pgm
    python benchmarks/rivals/tables.py private-pgm aim STATES.csv DOMAIN.json EPSILON DELTA SEED OUT.csv [OPTIONS]

STATES.csv holds a table of whole numbers, DOMAIN.json the number of states of each column. OUT.csv gets the rows,
OUT.csv.json the seconds of fit and draw. OPTIONS is JSON: ``degree`` is the workload's (2, as their script has it), all
else goes to AIM. Their mechanisms/aim.py and mst.py call three names of mbi 1 that version 2 renamed; ``renamed``
lends those. The estimator is the same: mirror descent with Armijo's line search, at their number of steps.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
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


def main(
    checkout: str, mechanism: str, states: str, domain: str, epsilon: str, delta: str, seed: str, out: str,
    options: str = "{}",
) -> None:  # fmt: skip
    sys.path.insert(0, str(Path(checkout) / "mechanisms"))
    mbi = renamed()
    table, sizes, given = pd.read_csv(states), json.loads(Path(domain).read_text()), json.loads(options)
    data, degree = mbi.Dataset(table, mbi.Domain.fromdict(sizes)), given.pop("degree", 2)
    np.random.seed(int(seed))  # noqa: NPY002 - both draw from it
    if mechanism == "aim":
        import quick_inference
        from aim import AIM

        names = list(sizes)
        quick_inference.check(data.domain, data, [tuple(names[at : at + 2]) for at in range(3)])
        mbi.estimation.mirror_descent = quick_inference.estimate
    clock, processor = time.perf_counter(), time.process_time()
    if mechanism == "aim":
        workload = [(one, 1.0) for one in itertools.combinations(sizes, degree) if data.domain.size(one) <= MAX_CELLS]
        _, rows = AIM(float(epsilon), float(delta), **given).run(data, workload)
    else:
        from mst import MST

        rows = MST(data, float(epsilon), float(delta))
    frame(rows).to_csv(out, index=False)
    took = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}
    Path(f"{out}.json").write_text(json.dumps(took))


if __name__ == "__main__":
    main(*sys.argv[1:])
