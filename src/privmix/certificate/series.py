"""A certificate's statements about the series that its release belongs to, and about the key that the series keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from privmix.fields import Checked, Digest, Text, read


@dataclass(frozen=True)
class SeriesLink(Checked):
    """A release's place in its series; ``previous``: SHA-256 of the previous step's certificate, None of the first."""

    id: Annotated[str, Text("[0-9a-f]{32}", "32 hexadecimal digits")]
    previous: Digest | None


def link_of(certificate: Mapping[str, Any]) -> SeriesLink | None:
    """Return the certificate's statement of a series; None where the release stands alone."""
    stated = certificate.get("series")
    return None if stated is None else read(SeriesLink, stated, "certificate series")


def key_kept(step: int, steps: int) -> str:
    """Sentence that states who keeps the key of a series, and until when."""
    if step < steps:
        return f"its owner keeps it until release {steps} of {steps} is made, or the series is ended"
    return f"its owner kept it until this release, the last of {steps}, was made"


UNCHECKED: Final = (
    "No ledger was charged, so nobody checked whether the noise of this release also served other records: from an "
    "older copy of the series' key, as a backup holds, it could."
)


def key_warning(step: int, steps: int) -> str:
    """Warning to recipients: the key of a series outlives its releases."""
    known = (
        "Whoever has it can take the noise off all releases of the series: until it is destroyed, the guarantee of "
        "every one of them rests on that key, too."
    )
    if step < steps:
        return (
            f"The key of this noise is not destroyed yet: it is kept for the releases to come ({step} of {steps} are "
            f"made). {known}"
        )
    return f"The key of this noise was kept until this release, the last of {steps}, was made. {known}"
