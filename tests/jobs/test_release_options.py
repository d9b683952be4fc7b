"""Options of jobs have names of their own: none hides a step of the job."""

from dataclasses import fields

import pytest

from privmix.jobs.job import Job
from privmix.jobs.release import ReleaseJob
from privmix.jobs.series import SeriesJob
from privmix.jobs.training import TrainingJob


@pytest.mark.parametrize("kind", [ReleaseJob, SeriesJob, TrainingJob])
def test_no_option_hides_a_step_of_its_job(kind: type[Job]) -> None:
    steps = {name for base in kind.__mro__ for name, one in vars(base).items() if callable(one) or hasattr(one, "func")}
    assert not {item.name for item in fields(kind)} & steps
