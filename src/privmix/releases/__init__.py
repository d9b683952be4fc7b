"""Releases: plan -> engine -> released dataset and certificate. Here alone private rows become public ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.designs import MomentsPlan, ReleasePlan, plan_from_dict
    from privmix.mechanisms.streams import SecretStreams
    from privmix.releases.api import release_to_folder, release_to_memory
    from privmix.releases.choice import Choice
    from privmix.releases.config import ReleaseConfig
    from privmix.releases.data_model import DataModel
    from privmix.releases.dataset import RecordTransform, ReleasedDataset
    from privmix.releases.engine import PrivateRecords, ReleaseEngine
    from privmix.releases.folder import load_release
    from privmix.releases.run import ReleaseRun
    from privmix.releases.verify import verify_release
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
    "load_release",
    "plan_from_dict",
    "release_to_folder",
    "release_to_memory",
    "verify_release",
]
