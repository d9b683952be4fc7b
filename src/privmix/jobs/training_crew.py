"""One training by workers of a Ray cluster: this process is charged, has the key and adds the noise, they have records.

Each worker carries out the same job, as processes beside the head do under torchrun. It gets the options and the names
of files, and reads the records itself; ledger, place of the result, seed and key stay here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeAlias

from privmix.engine.cluster import ClusterLost
from privmix.engine.crew import Crew
from privmix.engine.ray import Cluster
from privmix.engine.shared_places import check_places
from privmix.errors import InvalidInput, PrivmixError
from privmix.jobs.job import Job
from privmix.jobs.spending import told_by
from privmix.jobs.work import Done, Key
from privmix.progress import Progress
from privmix.training import TrainedModel
from privmix.training.noise import MOST_PROCESSES
from privmix.world import ProcessLost, World

# Of `privmix.jobs.training`, which imports this.
TrainingJob: TypeAlias = Any
PlannedTraining: TypeAlias = Any

_DEVICE: Final = "device"


class TrainingPart:
    """What a worker does of a training; see :class:`privmix.engine.crew.Part`.

    Args:
        job: as it is carried out here.
    """

    def __init__(self, job: TrainingJob) -> None:
        opened = replace(job.opened, data=job.opened.place, spool=None)
        # What stays with the process that is charged.
        own = dict.fromkeys(("out", "ledger", "dataset", "seed", "validation", "callbacks", "workers", "ray_address"))
        given: dict[str, Any] = {**own, "data": opened.place, "engine": "local", "resume": False, "overwrite": False}
        self._job = replace(job, **given)
        # Nothing is looked for again on another machine.
        self._job.__dict__["opened"] = opened
        self._planned: PlannedTraining | None = None

    def prepare(self) -> Any:
        """Plan, as all of them do; the settings."""
        self._planned = self._job.plan(World())
        return self._planned.trainer.settings()

    def take_part(self, world: World) -> None:
        """Carry it out beside the head."""
        assert self._planned is not None
        self._planned.trainer.check_world(world)
        self._job.carry_out(replace(self._planned, world=world))


def carried_out(job: TrainingJob, planned: PlannedTraining, progress: Progress) -> Done[TrainedModel]:
    """Carry out what is planned, on the job's cluster; what is lost is done again from the last checkpoint.

    Formal guarantees:
        * One charge: whoever is lost, the run goes on as one that was killed and is resumed.
        * Same bits: with as many workers as before, it ends with the weights that it would have had.
        * The key stays: workers get options, names of files and the streams that draw batches, and no key to noise.

    Raises:
        ProcessLost: workers were lost again and again; the run can be resumed.
        ClusterLost: no cluster, or no room on it, or a worker failed.
        InvalidInput, StorageError, BudgetExceeded: as :meth:`Job.carry_out`.
    """
    state = job.left()
    if state is not None and state.complete:
        # It only has to be put in its place.
        return Job.carry_out(job, planned, progress)
    cluster = Cluster(job.ray_address)
    with _crew(job, cluster) as crew:
        _check_same(planned, crew)
        left = cluster.max_retries
        while True:
            try:
                with crew.together() as world:
                    return Job.carry_out(job, replace(planned, world=world), progress)
            except ProcessLost as error:
                with _cause(error):
                    crew.replace_lost()
                if not left:
                    raise
                left -= 1
            job, planned = _resumed(job, planned)


@contextmanager
def _crew(job: TrainingJob, cluster: Cluster) -> Iterator[Crew]:
    """The cluster and its workers, which see the data and the place of the result; nothing is charged yet."""
    with cluster.open():
        import ray

        files = [*job.opened.source.manifest().files]
        check_places(job.out.absolute().parent, tuple(files))
        library: Any = ray
        on_gpu = job.device != "cpu" and library.cluster_resources().get("GPU", 0) >= 1
        if job.device is not None and job.device.startswith("cuda") and not on_gpu:
            raise InvalidInput(_DEVICE, job.device, "cpu: the cluster has no GPU")
        # The head is a process, too.
        workers = min(job.workers or MOST_PROCESSES, MOST_PROCESSES - 1)
        with Crew(cluster, TrainingPart(job), job.out.parent, workers=workers, on_gpu=on_gpu) as crew:
            yield crew


def _check_same(planned: PlannedTraining, crew: Crew) -> None:
    """Raise unless the workers plan what was planned here."""
    planned.trainer.computed_on = crew.said[_DEVICE]
    if crew.said != planned.trainer.settings():
        raise ClusterLost("ray: machines differ in what they make of the job; is the same privmix on all of them?")


@contextmanager
def _cause(lost: ProcessLost) -> Iterator[None]:
    """What fails in the block takes the place of an error that it explains."""
    try:
        yield
    except PrivmixError as error:
        raise told_by(error, lost) from None


def _resumed(job: TrainingJob, planned: PlannedTraining) -> tuple[TrainingJob, PlannedTraining]:
    """The same job, to go on with what it left; nothing is planned anew."""
    again = replace(job, resume=job.runs.interrupted(job.out) is not None)
    again.__dict__["opened"] = job.opened
    return again, replace(planned, job=again, key=Key(job.seed))
