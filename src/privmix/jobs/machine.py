"""Machines that do the work: this one, or a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final

from privmix.errors import InvalidInput, MissingExtra, check_integer, check_number
from privmix.named import chosen
from privmix.options import described, option

if TYPE_CHECKING:
    from privmix.engine.ray import Cluster

ENGINE_HELP: Final = "Compute engine: local, as local:memory_gb=8, or ray, as ray:address=auto."


@described
@dataclass(frozen=True)
class Local:
    """This machine."""

    memory_gb: float | None = option(None, "Memory for sums and records, in GiB. Default: half of all.")
    workers: int | None = option(None, "Number of threads. Default: every core.")

    name: ClassVar = "local"

    @property
    def cluster(self) -> Cluster | None:
        """The cluster, not connected; None: this machine."""
        return None


@described
@dataclass(frozen=True)
class Ray(Local):
    """A Ray cluster."""

    workers: int | None = option(None, "Number of parallel tasks. Default: every core or GPU.")
    address: str | None = option(None, "Address of the cluster. Default: a new local one.")

    name: ClassVar = "ray"

    @property
    def cluster(self) -> Cluster | None:
        # Its module takes a while to import.
        from privmix.engine.ray import Cluster

        return Cluster(self.address)


ENGINES: Final = {"local": Local, "ray": Ray}


def machine_of(engine: str | Local, design: str | None = None) -> Local:
    """Return a job's machine, checked before budget is charged: also whether a release's design can run there."""
    made = engine if isinstance(engine, Local) else chosen("engine", engine, ENGINES)
    assert isinstance(made, Local)
    if made.memory_gb is not None:
        check_number("engine memory_gb", made.memory_gb, low=0, low_open=True)
    if made.workers is not None:
        check_integer("engine workers", made.workers, low=1)
    if made.name == "local":
        return made
    from privmix.plans.registry import design_named

    if design is not None and made.name not in design_named(design).engines:
        raise InvalidInput("engine", made.name, f"local for design {design}, which reads records once and in blocks")
    if find_spec("ray") is None:
        raise MissingExtra("ray", "ray")
    return made
