"""Releases: plan -> engine -> released dataset and certificate."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.mechanisms.streams import SecretStreams
    from privmix.releases.api import release_to_folder, release_to_memory
    from privmix.releases.certificate import read_certificate
    from privmix.releases.folder import load_release
    from privmix.releases.run import ReleaseRun
    from privmix.releases.verify import verify_release
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "ReleaseRun",
    "SecretStreams",
    "load_release",
    "read_certificate",
    "release_to_folder",
    "release_to_memory",
    "verify_release",
]
