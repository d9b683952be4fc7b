"""What a partner receives: mixed rows, what lies beside them, and the public facts that learners need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.publication.dataset import RecordTransform, ReleasedDataset
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "RecordTransform",
    "ReleasedDataset",
]
