"""Release: plan -> engine -> released dataset and certificate. Here alone private rows become public ones."""

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
    from privmix.release.resume import Run, RunState, open_run, read_run
    from privmix.release.verify import Verification, verify_release
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
    "ReleasedDataset",
    "Run",
    "RunState",
    "SecretStreams",
    "Verification",
    "choose_design",
    "load_release",
    "open_run",
    "plan_from_dict",
    "read_run",
    "release_to_folder",
    "release_to_memory",
    "verify_release",
]
