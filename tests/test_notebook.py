"""A notebook, run by Jupyter's own kernel: results are cards."""

import os
from pathlib import Path

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


def test_results_are_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Kernels write below these.
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell, title in ((1, "Planned release"), (3, "Release "), (4, "PASS")):
        (shown,) = (one.data for one in book.cells[cell].outputs if one.output_type == "execute_result")
        assert title in shown["text/html"]
        assert "<svg" in shown["text/html"]
        assert title in shown["text/plain"]
