"""The faults of tests/detection.py are still ones of the source, and the tests that catch them are still there."""

import ast
from pathlib import Path

import pytest

from tests.detection import FAULTS, ROOT, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.says.replace(" ", "-"))
def test_a_fault_can_be_planted_and_its_tests_exist(fault: Fault) -> None:
    """Run ``python -m tests.detection`` to see that they catch it."""
    text = (ROOT / "src" / "privmix" / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.right) == 1
    ast.parse(text.replace(fault.right, fault.wrong))
    for test in fault.tests:
        file, name = test.split("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name.split("[")[0] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_kept_result_is_of_these_faults() -> None:
    page = Path(ROOT, "benchmarks", "results", "detection.md").read_text(encoding="utf-8")
    assert [fault.says for fault in FAULTS if f"| {fault.says} |" not in page] == []
    assert "not caught" not in page
