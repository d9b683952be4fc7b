"""Where torch is not installed, everything runs but trainings and networks; these say which extra they need."""

import subprocess
import sys
from pathlib import Path

from tests import core_path


def test_the_path_from_a_table_to_what_is_learnt_needs_no_torch(tmp_path: Path) -> None:
    """It imports none where it is installed, either: the script asserts it."""
    command = [sys.executable, "-W", "ignore", core_path.__file__, "--block"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "core: done"
    refused = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("refused:")]
    assert refused == ["2"] * (len(core_path.TORCH_LINES) + 1)
    named = (done.stdout + done.stderr).count("pip install '.[torch]'")
    assert named == len(refused)
