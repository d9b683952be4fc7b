"""The engine: exact sums of records, tile by tile, in memory, from disk or on a cluster, and noise once."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.engine.rows import PrivateRecords, ReleaseEngine
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["PrivateRecords", "ReleaseEngine"]
