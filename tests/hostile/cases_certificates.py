"""Certificates that are not what they seem."""

from __future__ import annotations

import os
from pathlib import Path

from tests.hostile.cases_models import LONG, linked
from tests.hostile.corpus import ALL, World, case, certify

# The model that these two judge is another one.
READERS = ALL["release"] - {"membership", "evaluate"}


@case("release", refused=READERS)
def certificate_with_an_endless_number(world: World, folder: Path) -> None:
    text = (folder / "certificate.json").read_text()
    (folder / "certificate.json").write_text(text.replace('"delta"', f'"more": {LONG}, "delta"', 1))


@case("release", refused=READERS)
def certificate_that_is_a_pipe(world: World, folder: Path) -> None:
    (folder / "certificate.json").unlink()
    os.mkfifo(folder / "certificate.json")


@case("release", refused=READERS)
def certificate_that_is_a_link(world: World, folder: Path) -> None:
    linked(world, folder, "certificate.json")


@case("release", refused={"collapse", "inversion", "canaries"})
def inputs_of_absurd_sizes(world: World, folder: Path) -> None:
    certify(folder, lambda found: found.update(input_shape=[10**9, 10**9]))
