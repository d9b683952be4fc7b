"""What scenarios use public records for."""

from __future__ import annotations

import pytest

from privmix.errors import InvalidInput
from privmix.training.public_phase import plan_public_use
from tests.training.public.helpers import public_data

REAL, MADE = public_data(3), public_data(5, seed=1)


@pytest.mark.parametrize(
    ("scenario", "real", "made", "method", "warm_up", "private_phase"),
    [
        ("cold", False, False, "none", None, None),
        ("warm", True, False, "none", 3, None),
        ("warm-synthetic", True, True, "none", 8, None),
        ("warm-synthetic", False, True, "none", 5, None),
        ("extended", True, False, "dope", 3, 3),
        ("extended", True, True, "multiplicity", 8, 8),
    ],
)
def test_scenarios_use_what_they_say(
    scenario: str, real: bool, made: bool, method: str, warm_up: int | None, private_phase: int | None
) -> None:
    use = plan_public_use(scenario, REAL if real else None, MADE if made else None, method)
    sizes = [None if data is None else data.size for data in use]
    assert sizes == [warm_up, private_phase]


@pytest.mark.parametrize(
    ("scenario", "real", "made", "method", "named"),
    [
        ("cold", True, False, "none", "public"),
        ("cold", False, True, "none", "synthetic"),
        ("cold", False, False, "dope", "public_method"),
        ("warm", False, False, "none", "public"),
        ("warm", True, True, "none", "synthetic"),
        ("warm", True, False, "dope", "public_method"),
        ("warm-synthetic", True, False, "none", "synthetic"),
        ("extended", True, False, "none", "public_method"),
        ("extended", False, False, "dope", "public"),
    ],
)
def test_scenarios_refuse_what_they_lack_or_would_ignore(
    scenario: str, real: bool, made: bool, method: str, named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        plan_public_use(scenario, REAL if real else None, MADE if made else None, method)
