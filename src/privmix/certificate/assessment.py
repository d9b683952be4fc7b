"""Answers to the questions of NIST SP 800-226 (Near, Darais, Lefkovitz and Howarth 2025), from public facts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from privmix.accounting.events import Adjacency
from privmix.errors import InvalidInput
from privmix.mechanisms.plan import RECORD, Unit
from privmix.rounding import exact, rounded_up

SOURCE: Final = "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (2025)"
_NAMES: Final = ("question", "holds", "does_not", "unknown")
COLUMNS: Final = ("question", "what holds", "what does not", "unknown to the program")


@dataclass(frozen=True)
class AssessedFacts:
    """The public facts that the answers are made from."""

    # epsilon: a bound, the requested one; records: the public number of units, whose kind is count; mechanism, bias,
    # digits, digits_left, settings: sentences. in_ledger: none, planned or adaptive; reads_records: private records had
    # a part; key_with: for whom the noise key was sealed (None: destroyed). key_kept: who keeps a series' key (None: no
    # series); weighed: records is the persons' total weight; most: bound on an estimated number. right: printed rate at
    # which the best attack wins an even bet (None: as earlier builds wrote it, from epsilon and delta alone).

    what: Literal["release", "model"]
    adjacency: Adjacency
    epsilon: float
    delta: float
    records: int
    count: Literal["public", "declared", "private"]
    mechanism: str
    bias: Sequence[str]
    digits: str
    digits_left: str
    settings: str
    in_ledger: str
    insecure_seed: bool
    public_data: Sequence[str] = ()
    reads_records: bool = True
    unit: Unit = RECORD
    key_with: str | None = None
    key_kept: str | None = None
    weighed: bool = False
    most: int | None = None
    right: str | None = None


Answer = tuple[str, str, str, str]
"""One question and the texts about it, as :data:`COLUMNS`; an empty text means that there is nothing to state."""


def assess(facts: AssessedFacts) -> list[dict[str, str]]:
    """Return the answers as JSON values, in a fixed order.

    Formal guarantees:
        * the answers are a function of ``facts``, which are public: anyone who has the certificate can make them again;
        * figures are bounds on their safe side.
    """
    public = f" Taken as public and not protected: {', '.join(sorted(facts.public_data))}." if facts.public_data else ""
    made = (
        _unit(facts),
        _parameters(facts),
        _mechanism(facts),
        _composition(facts),
        _bias(facts),
        _side_channels(facts),
        _trust(facts),
        (
            "Data collection and access",
            "No raw record is in any file here.",
            "The raw records stay where they were: nothing here limits who reads them or how long they are kept."
            + public,
            "How the records were collected, with what consent, and whom they leave out. Whether the feature extractor "
            "was made without them.",
        ),
        (
            "Settings and tuning",
            facts.settings,
            "Settings found by trying them on the same records, in other runs, cost privacy that is not counted here.",
            "Whether that was done.",
        ),
        (
            "Post-processing",
            "Whatever is computed from these files alone costs no further privacy, however often.",
            "Results of tests on the private records, and other uses of them, are not covered.",
            "",
        ),
    )
    return [dict(zip(_NAMES, answer, strict=True)) for answer in made]


def markdown(assessment: Sequence[Mapping[str, str]]) -> str:
    # A bar would end its cell.
    rows = ["| " + " | ".join(answer[name].replace("|", "/") or "–" for name in _NAMES) + " |" for answer in assessment]
    return "\n".join(["| " + " | ".join(COLUMNS) + " |", "|---|---|---|---|", *rows])


def as_rows(assessment: Any) -> list[tuple[str, str, str, str]]:
    """Return the answers as rows of four texts, from JSON."""
    rows: list[tuple[str, str, str, str]] = []
    for item in assessment if isinstance(assessment, list) else [None]:
        found: list[Any] = (
            [item.get(name) for name in _NAMES] if isinstance(item, dict) and set(item) == set(_NAMES) else []
        )
        if len(found) != len(_NAMES) or not all(isinstance(text, str) for text in found):
            raise InvalidInput("certificate assessment", "other fields", "texts: " + ", ".join(_NAMES))
        rows.append((found[0], found[1], found[2], found[3]))
    return rows


def _unit(facts: AssessedFacts) -> Answer:
    present, unit = facts.adjacency is Adjacency.ADD_REMOVE, facts.unit
    if unit.per_person is not None:
        holds = "One person, with all of their records: "
        holds += "whether they are in the data." if present else "what their records say."
        unused = "neither the real number of persons nor of records is used"
        group = "What a household or another group of k persons has in common is protected by k times the epsilon."
        unknown = "Whether identifiers name each person once. How many records a person has plays no part."
    else:
        holds = "One record: whether it is in the data." if present else "One record: what it says."
        unused = "the real number of records is not used"
        group = "Someone with k records is protected by k times the epsilon, at a delta more than k times as large."
        unknown = "How many records one person has in the data."
    if facts.count == "private":
        estimated = f"what they weigh together, {facts.records}," if facts.weighed else f"{facts.records}"
        holds += f" The number of {unit.many} is hidden too; {estimated} is a private estimate."
    elif facts.count == "declared":
        holds += f" {facts.records} is a declared figure; {unused}."
    gone = f"The number of {unit.many}, {facts.records}, is published." if facts.count == "public" else ""
    if not present:
        gone += f" That a {unit.one} is in the data at all is not hidden."
    return "Unit of privacy", holds, f"{gone} {group}".strip(), unknown


def _parameters(facts: AssessedFacts) -> Answer:
    bound = f"Epsilon is at most {rounded_up(facts.epsilon)} at delta {exact(facts.delta)}"
    if facts.right is None:
        growth = math.exp(-min(facts.epsilon, 700.0))
        # Kairouz, Oh and Viswanath 2015: total variation distance of the worst pair.
        right = f"{rounded_up(100 * min(1.0, (1 + facts.delta * growth) / (1 + growth)))}%"
    else:
        right = facts.right
    holds = (
        f"{bound}: an upper bound that anyone can recompute from the plan. An attacker who would be right half of the "
        f"time without it is right at most {right} of the time with it."
    )
    gone = ""
    if facts.insecure_seed:
        holds = ""
        gone = (
            f"An epsilon of at most {rounded_up(facts.epsilon)} was meant. The noise came from a seed: whoever guesses "
            "it can subtract the noise."
        )
    elif facts.delta > 0:
        # The figure of the whole curve holds without exception.
        if facts.right is None:
            gone = f"With chance up to {exact(facts.delta)} (delta) more than that may be learned."
        if facts.delta >= 1 / (facts.most or facts.records):
            many = facts.unit.many
            named = "Delta" if facts.right else f"{gone} That"
            gone = f"{named} is not below 1 in the number of {many}: whole {many} might be shown."
    return ("Privacy parameters", holds, gone, "Whether that is enough for these people: the owner decides.")


def _mechanism(facts: AssessedFacts) -> Answer:
    made = "rows" if facts.what == "release" else "weights"
    unknown = f"That these {made} came from running this plan: no check of the files can show that."
    if facts.key_with is not None:
        unknown += " Beside the records the sealed key shows it."
    return ("Mechanism and noise", facts.mechanism, "", unknown)


def _composition(facts: AssessedFacts) -> Answer:
    holds = "All queries of this " + facts.what + " are priced together."
    unknown = "Whether settings were chosen after seeing earlier results on these records."
    if facts.in_ledger != "none":
        holds += " A ledger was charged before the first private record was read, by its owner's word."
        if facts.in_ledger == "adaptive":
            holds += " Its budget is a privacy filter: settings may have been chosen after seeing earlier results."
            unknown = "Whether results on these records that the ledger does not know decided its settings."
        gone = "Uses of the same records that were not charged to that ledger."
    else:
        gone = "No ledger was used: other releases and models of the same records add to this."
    return ("Composition and budget", holds, gone, unknown)


def _bias(facts: AssessedFacts) -> Answer:
    gone = " ".join(facts.bias)
    if not facts.reads_records:
        return ("Bias and utility", "There is no noise.", gone, "How each group fares: test by group.")
    gone += (
        " The same noise falls on all: small classes and small groups are served worse than large ones, and no "
        "accuracy is promised for any."
    )
    return (
        "Bias and utility",
        "The noise has mean zero and a published size, so that its effect can be computed.",
        gone,
        "How many records were clipped, and how each group fares: measuring it on the private records would cost "
        "privacy. Test on data of your own, by group.",
    )


def _side_channels(facts: AssessedFacts) -> Answer:
    if not facts.reads_records:
        return ("Side channels", facts.digits, "", "")
    source = "a seed, which is no secret" if facts.insecure_seed else "a cryptographic generator under a secret key"
    return (
        "Side channels",
        f"{facts.digits} Randomness comes from {source}.",
        f"{facts.digits_left} Running time, memory and disks of the machine that made it are not protected.",
        "Who could watch or read that machine.",
    )


def _trust(facts: AssessedFacts) -> Answer:
    if not facts.reads_records:
        holds = "No private record was needed: whoever has the public data can make this."
        unknown = "Whether the public data hold private records. Who made this, unless it is signed."
        return ("Trust model", holds, "", unknown)
    gone = "Whoever ran it saw the records. Attackers with unbounded computing power could break the generator."
    unknown = "That the key of the noise was secret and is gone. Who made this, unless it is signed."
    if facts.key_with is not None:
        gone += f" The key of the noise is sealed for {facts.key_with}: whoever opens it can take off all the noise."
        unknown = (
            "That the key of the noise was secret, that no copy of it is left but the sealed one, and what is done "
            "with that. Who made this, unless it is signed."
        )
    if facts.key_kept is not None:
        gone += (
            f" The key of the noise serves all releases of the series, and {facts.key_kept}: whoever has it can take "
            "off all the noise."
        )
        unknown = "That the key of the noise is secret, and gone in the end. Who made this, unless it is signed."
    return (
        "Trust model",
        "Central: the owner of the records adds the noise; whoever receives this need not be trusted.",
        gone,
        unknown,
    )
