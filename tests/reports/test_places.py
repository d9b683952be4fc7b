"""The public reads names of files, never where they lie."""

import pytest

from privmix.reports.page import render_page
from privmix.reports.records import RunRecord, last_name, public_command, public_values

SECRET = "hiv-clinic"
PLACES = [
    "/home/ann/hiv-clinic/x.npz", "../hiv-clinic/x.npz", "hiv-clinic/x.npz", "~/hiv-clinic/x.npz", "~hiv-clinic",
    "@/home/hiv-clinic/names.txt", "@../hiv-clinic/names.txt", "module:/home/hiv-clinic/net.pt",
    "sqlite:////home/hiv-clinic/l.db", "postgresql://hiv-clinic:pw@host/books", "postgresql://ann:pw@hiv-clinic",
    "postgresql://ann:p/hiv-clinic@host", "s3://hiv-clinic/x.npz?token=hiv-clinic", r"C:\\hiv-clinic\\x.npz",
    r"\\\\server\\hiv-clinic\\x.npz", "a,/home/hiv-clinic/b", "file:///home/hiv-clinic/x",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_no_way_to_a_place_is_left(place: str) -> None:
    for shown in (
        last_name(place),
        public_command(f"privmix audit --data='{place}' '{place}'"),
        str(public_values({"of": [place]})),
    ):
        assert SECRET not in shown


def test_a_public_page_says_no_way_to_a_place_whoever_wrote_the_record() -> None:
    subject = {"kind": "design", "id": None}
    for place in PLACES:
        settings = {"data": place, "extractor": {"name": "module", "path": place}}
        record = RunRecord("audit", subject, False, {"proven_epsilon": 0.1}, settings, command=f"privmix x '{place}'")
        assert SECRET not in render_page([record], "public"), place


def test_names_of_classes_and_columns_stay_whole() -> None:
    assert public_command("privmix '/home/hiv") == ""
    settings = {
        "classes": ["a/b", "n/a", "http://x"],
        "columns": [{"name": "BMI (kg/m2)", "range": [10, 60]}],
        "data": ["/home/ann/hiv/x.csv"],
    }
    shown = public_values({"extractor": settings, "classes": "@/home/ann/hiv/names.txt"})
    assert shown["extractor"] == {**settings, "data": ["x.csv"]}
    assert shown["classes"] == "@names.txt"
