"""Release: plan -> engine -> released dataset and certificate. Here alone private rows become public ones.

Called, this package is :func:`privmix.jobs.releasing.release`: ``privmix.release(data, ...)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.designs import MomentsPlan, ReleasePlan, plan_from_dict
    from privmix.mechanisms.streams import SecretStreams
    from privmix.release.api import release_to_folder, release_to_memory
    from privmix.release.config import ReleaseConfig
    from privmix.release.dataset import RecordTransform, ReleasedDataset
    from privmix.release.engine import PrivateRecords, ReleaseEngine
    from privmix.release.folder import load_release
    from privmix.release.planner import Choice, choose_design
    from privmix.release.prediction import DataModel
    from privmix.release.run import ReleaseRun
    from privmix.release.verify import verify_release
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Choice",
    "DataModel",
    "MomentsPlan",
    "PrivateRecords",
    "RecordTransform",
    "ReleaseConfig",
    "ReleaseEngine",
    "ReleasePlan",
    "ReleaseRun",
    "ReleasedDataset",
    "SecretStreams",
    "choose_design",
    "load_release",
    "plan_from_dict",
    "release_to_folder",
    "release_to_memory",
    "verify_release",
]
