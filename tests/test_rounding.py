"""Bounds go up, proofs go down, and what was set stays; no computed bound is printed to the nearest."""

import ast
import re
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from privmix.rounding import exact, rounded_down, rounded_up

SOURCE = Path(__file__).parents[1] / "src" / "privmix"
# What a guarantee or a proof is made of. Words such as noise_std are measurements and may be rounded to the nearest.
BOUND = re.compile(r"(epsilon|delta|budget|spent|remaining|composed|requested|claimed|proven|provable)")
NEAREST = re.compile(r"\.?\d*[gefGEF]$")


@given(st.floats(-1e300, 1e300), st.integers(1, 15))
@example(1.234334, 4)
@example(0.1, 3)
@example(9.9999, 2)
@example(5e-324, 3)
def test_a_bound_never_shrinks_and_a_proof_never_grows(value: float, digits: int) -> None:
    up, down = float(rounded_up(value, digits)), float(rounded_down(value, digits))
    assert down <= value <= up
    assert float(exact(value)) == value
    # One unit of the last digit, but for the floats' own width at their small end.
    assert up - down <= abs(value) * 10.0 ** (1 - digits) * 1.0000001 + 1e-323


def nearest(source: str) -> list[str]:
    """Every formatted value of a text that rounds something named like a bound to the nearest."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
            spec = ast.unparse(node.format_spec)[2:-1]
            if NEAREST.search(spec) and BOUND.search(ast.unparse(node.value)):
                found.append(f"line {node.lineno}: {{{ast.unparse(node.value)}:{spec}}}")
    return found


def test_no_bound_is_printed_to_the_nearest() -> None:
    found = {str(path): nearest(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    assert {path: lines for path, lines in found.items() if lines} == {}
    planted = nearest('print(f"epsilon {found.epsilon:.4g}, noise {plan.noise_std:.4g}")')
    assert planted == ["line 1: {found.epsilon:.4g}"]
