"""What tests of trainings on a cluster do inside its workers."""

from __future__ import annotations

import gc
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KILLED_AT, LOOKED_AT = 3, 4


@dataclass(frozen=True)
class Watched:
    """Notes which keys a worker has late in a training; one worker kills itself before, if it is to."""

    folder: str
    kill: bool
    rank: int = 2

    def __call__(self) -> None:
        from privmix.training.dp_sgd import DpSgd

        own = DpSgd.step

        def step(self_: DpSgd, number: int) -> None:
            if self.kill and number == KILLED_AT and self_.world.rank == self.rank and self._first():
                os.kill(os.getpid(), signal.SIGKILL)
            if number == LOOKED_AT:
                self._note(self_.world.rank)
            own(self_, number)

        DpSgd.step = step  # type: ignore[method-assign]

    def _first(self) -> bool:
        try:
            Path(self.folder, "killed").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _note(self, rank: int) -> None:
        from privmix.mechanisms.streams import SecretStreams

        known = [bytes(one._key).hex() for one in gc.get_objects() if isinstance(one, SecretStreams) and one._key]
        Path(self.folder, f"keys-{rank}-{os.getpid()}").write_text("\n".join(known))


def train_loop(asked: dict[str, Any]) -> None:
    """What each worker of Ray Train does: the second one kills itself once."""
    import privmix as pm
    from privmix.training import run as run_module

    run_module._EVERY = 0.0
    out = Path(asked["folder"], asked["name"])
    Watched(asked["folder"], kill=True, rank=1)()
    begun = out.with_name(f".{out.name}.run").exists()
    pm.train(Path(asked["folder"], "d.parquet"), out=out, resume=begun, **asked["options"])
