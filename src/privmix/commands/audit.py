"""Audits of a release, a model or a design: which epsilon an attack proves, or how large the noise is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from privmix.audits.defaults import CONFIDENCE, RUNS
from privmix.commands.base import Command, function
from privmix.errors import InvalidInput, Unquoted, check_choice, warn
from privmix.jobs.options import DESIGN_HELP, DESIGN_KINDS, DESIGN_NAMES, CanaryOptions, Recorded
from privmix.options import option
from privmix.progress import Progress, in_hundredths

if TYPE_CHECKING:
    from privmix.jobs.audit import AuditResult, Claim
    from privmix.plans.design import Design
    from privmix.plans.plan import Plan
    from privmix.training.plan import TrainingPlan

KINDS: Final = ("worst-case", "noise", "canaries")
_CLAIM: Final = "Design without a release"
_OF_DESIGNS: Final = ("records", "rows", "epsilon", "delta", "classes", "as_published")


@dataclass(frozen=True, eq=False, repr=False)
class Audit(CanaryOptions, Recorded, Command["AuditResult[Any]"]):
    """Prove a lower bound on epsilon by attacking the release mechanism.

    Attacks the worst pair of neighbouring datasets, without private data. `noise` tests all noise on empty records.
    `canaries` inserts canaries into a model's training records and trains once more, at its full cost. Exit code 4
    if a claim is refuted.

    Raises:
        InvalidInput: the certificate does not hold, a value is out of range, or an option belongs to another kind.
        StorageError: a file is missing or can't be read.
        BudgetExceeded: of canaries: the ledger does not hold so much; nothing was read.

    Example:
        >>> from privmix.planning import ReleaseConfig
        >>> config = ReleaseConfig(records=1000, dim=1, classes=("no", "yes"), rows=50, centre="none")
        >>> found = audit(config.calibrate(2.0, 1e-5), runs=400, seed=0)
        >>> found.violated, found.audit.proven_epsilon < 2.0
        (False, True)
    """

    example = """privmix audit REL --record RUN
privmix audit REL --seconds 60 --enough 0.5
privmix audit REL --noise
privmix audit --design hierarchical:expected_classes=3 --classes 100 --records 50000 --epsilon 1 --as-published
privmix audit TRAINED --data mnist --canaries 1000"""

    target: str | PathLike[str] | Plan | TrainingPlan | Claim | None = option(
        None,
        "Folder of a release or model; omit with `design`.",
        in_python="Also a release, a plan or a claim.",
        argument=True,
    )
    kind: str | None = option(None, "Audit: worst-case, noise or canaries. Default: by the other options.", python=True)
    _: KW_ONLY
    design: str | Design[Any] | None = option(None, DESIGN_HELP, names=DESIGN_NAMES, kinds=DESIGN_KINDS)
    noise: bool = option(False, "Test the noise itself on empty records, instead of an attack.")
    runs: int | None = option(None, f"Number of independent runs, half with the record. Default: {RUNS}.")
    seconds: float | None = option(None, "Approximate duration of the runs, in seconds.")
    enough: float | None = option(None, "Share of the claimed epsilon at which the audit stops.")
    confidence: float = option(CONFIDENCE, "Confidence level of the result.")
    seed: int | None = option(None, "Seed for repeatable tests.")
    records: int | None = option(None, "Record count n, with `design`.", _CLAIM)
    rows: int | None = option(None, "Number of released rows T, with `design`. Default: n.", _CLAIM)
    epsilon: float | None = option(None, "Claimed epsilon, with `design`.", _CLAIM)
    delta: float = option(1e-5, "Claimed delta, with `design`.", _CLAIM)
    classes: int = option(10, "Number of classes, with `design`.", _CLAIM)
    as_published: bool = option(False, "Use the noise of the papers' formula: audit the published claim.", _CLAIM)

    def run(self, progress: Progress) -> AuditResult[Any]:
        from privmix.audits.audit import MOST_RUNS, Stopping
        from privmix.jobs.audit import audit_its_noise, audit_worst_case

        # An audit may take hours, so an unusable place for its record fails first.
        self.check_record()
        with_canaries = self.data is not None or self.canaries is not None
        kind = self.kind or ("noise" if self.noise else "canaries" if with_canaries else "worst-case")
        check_choice("kind", kind, KINDS)
        if kind != "noise":
            self._refuse(["noise"], f"no value with kind {kind}")
        if kind != "worst-case":
            self._refuse(["runs", "seconds", "enough", "as_published"], "only with kind worst-case")
        if kind == "canaries":
            return self._with_canaries(progress)
        self._refuse([item.name for item in fields(CanaryOptions) if item.init], "only options of canaries")
        claim = self._claim()
        if kind == "noise":
            return audit_its_noise(claim, self.confidence, self.seed, progress)
        stopping = Stopping(self.seconds, self.enough)
        most = (RUNS if stopping.looks_once else MOST_RUNS) if self.runs is None else self.runs
        return audit_worst_case(claim, most, stopping, self.confidence, self.seed, progress)

    def _refuse(self, names: Sequence[str], allowed: str) -> None:
        usual = {item.name: item.default for item in fields(self)}
        for name in names:
            value = getattr(self, name)
            # By identity: arrays and frames have no plain equality. Texts of one value may be two objects.
            if value is not usual[name] and not (isinstance(value, str) and value == usual[name]):
                raise InvalidInput(name, value if isinstance(value, str | int | float) else "given", allowed)

    def _with_canaries(self, progress: Progress) -> AuditResult[Any]:
        from privmix.jobs.canaries import CanaryJob

        if self.target is None or self.data is None or self.canaries is None:
            missing = [name for name in ("target", "data", "canaries") if getattr(self, name) is None]
            raise InvalidInput("target, data, canaries", f"no {' and no '.join(missing)}", "all three")
        if not isinstance(self.target, str | PathLike):
            raise InvalidInput("target", type(self.target).__name__, "the folder of a trained model")
        self._refuse(["design", *_OF_DESIGNS], "no value with canaries, which use the target's plan")
        given = {item.name: getattr(self, item.name) for item in fields(CanaryOptions) if item.init}
        job = CanaryJob(target=Path(self.target), confidence=self.confidence, seed=self.seed, **given)
        planned = job.plan()
        # Progress by records would show their number.
        done = job.carry_out(planned, in_hundredths(progress) if planned.count_is_private else progress)
        for text in done.warnings:
            warn(text)
        return done.result

    def _claim(self) -> Claim:
        from privmix.commands.account.account import priced_config
        from privmix.jobs.audit import Claim
        from privmix.named import chosen
        from privmix.plans.registry import DESIGNS

        design = chosen("design", self.design, DESIGNS) if isinstance(self.design, str) else self.design
        if (self.target is None) == (design is None):
            raise InvalidInput("target, design", Unquoted("both or neither"), "either a folder or a design")
        if self.target is not None:
            self._refuse(_OF_DESIGNS, "only with `design`")
            if isinstance(self.target, str | PathLike):
                return Claim.of_folder(Path(self.target))
            return self.target if isinstance(self.target, Claim) else Claim.of_plan(self.target)
        if design is None or self.records is None or self.epsilon is None:
            raise InvalidInput(
                "records, epsilon", "not given", "the design's record count and its claimed epsilon and delta"
            )
        config = priced_config(self.records, self.classes, self.rows, design)
        return Claim.of_design(config, self.epsilon, self.delta, as_published=self.as_published)


audit: Final = function(Audit)
