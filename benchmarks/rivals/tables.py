"""AIM or MST on a table of states, by the package dpmm: a script for an environment of its own.

    pip install dpmm==0.1.9
    python benchmarks/rivals/tables.py aim STATES.csv DOMAIN.json EPSILON DELTA SEED OUT.csv [OPTIONS]

STATES.csv holds a table of whole numbers, DOMAIN.json how many states each column has. OUT.csv gets as many rows, and
OUT.csv.json the seconds of fit and draw, of the clock and of the processor. OPTIONS is JSON: options of the package
that are not as it has them by itself. The steps of its inference are those of quick_inference.py.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import quick_inference
from dpmm.models.base.mbi import CliqueVector, FactoredInference

MODELS = {"aim": ("dpmm.models.aim", "AIMGM"), "mst": ("dpmm.models.mst", "MSTGM")}


def main(
    rival: str, states: str, domain: str, epsilon: str, delta: str, seed: str, out: str, options: str = "{}"
) -> None:
    quick_inference.use(FactoredInference, CliqueVector)
    module, name = MODELS[rival]
    model_type = getattr(importlib.import_module(module), name)
    table, sizes = pd.read_csv(states), json.loads(Path(domain).read_text())
    clock, processor = time.perf_counter(), time.process_time()
    model = model_type(
        epsilon=float(epsilon),
        delta=float(delta),
        domain=sizes,
        random_state=np.random.RandomState(int(seed)),
        n_jobs=1,
        **json.loads(options),
    )
    model.fit(table)
    model.generate(n_records=len(table)).to_csv(out, index=False)
    took = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}
    Path(f"{out}.json").write_text(json.dumps(took))


if __name__ == "__main__":
    main(*sys.argv[1:])
