"""The use of public records in each scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from privmix.errors import InvalidInput
from privmix.training.examples import PublicData
from privmix.training.public.config import Scenario


@dataclass(frozen=True, eq=False)
class PublicUse:
    """Public records of a scenario: for the warm-up, and for the private phase; None where there is no use."""

    warm_up: PublicData | None
    private_phase: PublicData | None


def plan_public_use(
    scenario: str, public: PublicData | None = None, synthetic: PublicData | None = None, method: str = "none"
) -> PublicUse:
    """Return the records that ``scenario`` uses in each phase; raise for missing or unused data or methods."""
    try:
        chosen = Scenario(scenario)
    except ValueError:
        raise InvalidInput("scenario", scenario, "one of " + ", ".join(Scenario)) from None
    given: dict[str, Any] = {"public": public, "synthetic": synthetic}
    needed, refused = _NEEDS[chosen]
    for name in needed:
        if given[name] is None:
            raise InvalidInput(name, None, f"records, as scenario {chosen} needs them")
    for name in refused:
        if given[name] is not None:
            raise InvalidInput(name, "records", f"none in scenario {chosen}, which does not use them")
    if (chosen is Scenario.EXTENDED) != (method != "none"):
        allowed = "a method that uses public data" if chosen is Scenario.EXTENDED else "none"
        raise InvalidInput("public_method", method, f"{allowed} in scenario {chosen}")
    records = public.join(synthetic) if public is not None and synthetic is not None else public or synthetic
    if chosen is Scenario.EXTENDED and records is None:
        raise InvalidInput("public", None, f"real or synthetic records, as scenario {chosen} needs them")
    return PublicUse(records, records if chosen is Scenario.EXTENDED else None)


_NEEDS: dict[Scenario, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Scenario.COLD: ((), ("public", "synthetic")),
    Scenario.WARM: (("public",), ("synthetic",)),
    Scenario.WARM_SYNTHETIC: (("synthetic",), ()),
    Scenario.EXTENDED: ((), ()),
}
