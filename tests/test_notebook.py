"""A notebook, run by Jupyter's own kernel: results are cards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

SOURCE = Path(__file__).parents[1] / "src"
CELLS = [
    "import warnings; warnings.simplefilter('ignore')\n"
    "import numpy as np\nimport privmix as pm\n"
    "x, y = np.eye(300)[:, :9], np.arange(300) % 2\n"
    "made = dict(classes=2, features='identity', epsilon=1, delta=1e-4)",
    "planned = pm.plan((x, y), progress=False, **made)\nplanned",
    "release = pm.release((x, y), design='poisson', **made)",
    "release",
    "pm.verify(release, progress=True)",
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    place = tmp_path_factory.mktemp("notebook")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    with pytest.MonkeyPatch.context() as patch:
        # Kernels write below these.
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR"):
            patch.setenv(name, str(place / name.lower()))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMP_NUM_THREADS", "1")
        NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(place)}}).execute()
    return [cell.outputs for cell in book.cells]


def test_results_are_cards(outputs: list[list[Any]]) -> None:
    for cell, title in ((1, "Planned release"), (3, "Release "), (4, "PASS")):
        shown = [one for one in outputs[cell] if one.output_type == "execute_result"]
        assert len(shown) == 1
        page = shown[0].data["text/html"]
        assert title in page
        assert "<svg" in page
        assert len(page) < 6_500
        assert title in shown[0].data["text/plain"]
