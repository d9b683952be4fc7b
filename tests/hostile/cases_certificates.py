"""Certificates that are not what they seem."""

from __future__ import annotations

import os

from tests.hostile.cases_models import LONG, linked, replaced, spoil
from tests.hostile.corpus import ALL, cases, certify

cases(
    "release",
    # The model that these two judge is another one.
    ALL["release"] - {"membership", "evaluate"},
    certificate_with_an_endless_number=replaced("certificate.json", '"delta"', f'"more": {LONG}, "delta"'),
    certificate_that_is_a_pipe=spoil("certificate.json", os.mkfifo),
    certificate_that_is_a_link=lambda world, folder: linked(world, folder, "certificate.json"),
)
cases(
    "release",
    {"collapse", "inversion"},
    inputs_of_absurd_sizes=lambda _, folder: certify(folder, lambda found: found.update(input_shape=[10**9, 10**9])),
)
