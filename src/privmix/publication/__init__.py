"""The recipient's part: mixed rows, arrays in addition to them, and the public facts that learners need."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.publication.dataset import RecordTransform, ReleasedDataset
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = ["RecordTransform", "ReleasedDataset"]
