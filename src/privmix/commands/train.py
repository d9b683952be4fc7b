"""Training of a private model with DP-SGD."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, cast

from privmix.commands.base import Command, function
from privmix.errors import warn
from privmix.jobs.training_options import TrainingOptions
from privmix.progress import Progress

if TYPE_CHECKING:
    from privmix.jobs.models import Model

_NOT_COMPARED: Final = (
    "no private record was read, and the public data were not compared with private records: you vouch that they are "
    "public"
)


@dataclass(frozen=True, eq=False, repr=False)
class Train(TrainingOptions, Command["Model"]):
    """Train a private model with DP-SGD.

    Plans batches, steps and noise from public facts, charges the ledger, then reads the records. `resume` finishes
    an interrupted run with the same weights and without a second charge. Under torchrun, each process takes a share
    of each batch. In Python, the model has a `certificate`, and stays in memory without `out`.

    Raises:
        InvalidInput: options don't go together, the data are not as declared, or no noise meets the budget.
        BudgetExceeded: the ledger does not hold it; nothing was read.
        StorageError: reading or writing failed.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(400, 4))
        >>> y = (x[:, 0] > 0).astype(int)
        >>> model = train((x, y), epsilon=8.0, delta=1e-4, classes=range(2), features="identity", epochs=5)
        >>> model.certificate["guarantee"]["epsilon"] <= 8.0, model.predict(x).shape
        (True, (400,))
    """

    example = """privmix train --data mnist --features scattering --epsilon 1.2 --delta 1e-5 --out MODEL
privmix train --data cifar10 --model wrn-16-4 --views dp-mix-self --epsilon 8 --delta 1e-5 --out MODEL
privmix train ... --scenario extended --public PUBLIC --public-method multiplicity"""

    @property
    def count_is_private(self) -> bool:
        """Whether progress is shown in percent."""
        return self.records is not None or self.private_count

    @property
    def prints(self) -> bool:
        """Whether this process prints: of several the first."""
        from privmix.world import is_first

        return self.dry_run or is_first()

    def run(self, progress: Progress) -> Model:
        from privmix.jobs.dataset import PUBLISHED_NAMES, shown_names
        from privmix.jobs.models import Model
        from privmix.jobs.training import TrainingJob

        job = TrainingJob(**{item.name: getattr(self, item.name) for item in fields(TrainingOptions) if item.init})
        with job.processes() as world:
            planned = job.plan(world)
            if self.dry_run:
                return cast("Model", planned)
            # Each process would repeat the same warnings.
            for text in planned.cautions if world.is_head else ():
                warn(text)
            done = job.carry_out(planned, progress)
        for text in done.warnings:
            warn(text)
        names = f"{PUBLISHED_NAMES}: {shown_names(job.opened.published_names)}"
        model = Model(done.result, notes=(names, *(() if planned.plan.steps else (_NOT_COMPARED,))))
        # The user's own, whose model may lie where a certificate may not point.
        model.__dict__["extractor"] = job.extractor
        return model

    def then(self, found: Any) -> str | None:
        return None if self.dry_run else f"privmix evaluate {shlex.quote(str(self.out))} --data DIR --split test"


train: Final = function(Train)
