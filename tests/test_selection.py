"""The tests that a change has to pass: import distances, equal parts, the time, and where a change begins."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import durations, selection
from tests.imports import ImportGraph

ROOT = Path(__file__).parents[1]
TESTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))

CHECKOUT = {
    "src/privmix/__init__.py": "from privmix.sums.total import total\n",
    "src/privmix/sums/__init__.py": "",
    "src/privmix/sums/total.py": "def total():\n    from privmix.noise import draw\n",
    "src/privmix/sums/mean.py": "from privmix.sums import (\n    total,\n)\n",
    "src/privmix/noise.py": "",
    "src/privmix/plan.py": 'ENGINE = "privmix.noise:draw"\n',
    "src/privmix/page/__init__.py": "",
    "src/privmix/page/markup.py": 'PAGE = "page.js"\n',
    "src/privmix/page/page.js": "",
    "tests/conftest.py": "",
    "tests/sums/conftest.py": "from tests.sums.helpers import records\n",
    "tests/sums/helpers.py": "",
    "tests/sums/test_total.py": "from privmix.sums.total import total\n",
    "tests/sums/test_mean.py": "from privmix.sums import mean\n",
    "tests/sums/frozen.bin": "",
    "tests/test_lent.py": "import privmix as pm\ndef test(): pm.total()\n",
    "tests/test_plan.py": 'SCRIPT = "from privmix import plan; from privmix.plan import ENGINE"\n',
    "tests/test_markup.py": "from privmix.page import markup\n",
    "tests/test_docs.py": 'PAGES = ROOT / "docs"\n',
    "tests/test_other.py": "import os\n",
    "docs/index.md": "",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in CHECKOUT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "distances"),
    [
        # Imports in functions and by packages, and modules that strings name.
        ("src/privmix/noise.py", {"sums/test_total": 2, "sums/test_mean": 3, "test_lent": 3, "test_plan": 2}),
        ("src/privmix/sums/total.py", {"sums/test_total": 0, "sums/test_mean": 2, "test_lent": 2}),
        ("src/privmix/sums/mean.py", {"sums/test_mean": 0}),
        ("src/privmix/__init__.py", {"test_lent": 1}),
        ("tests/sums/helpers.py", {"sums/test_total": 2, "sums/test_mean": 2}),
        ("tests/sums/test_mean.py", {"sums/test_mean": 0}),
        ("tests/sums/frozen.bin", {"sums/test_total": 0, "sums/test_mean": 0}),
        ("src/privmix/page/page.js", {"test_markup": 1}),
        ("docs/index.md", {"test_docs": 0}),
        ("src/privmix/removed.py", {}),
        ("CHANGELOG.md", {}),
    ],
)
def test_distances_count_imports(checkout: Path, changed: str, distances: dict[str, int]) -> None:
    found = selection.near(ImportGraph(checkout), [changed])
    assert found == {f"tests/{name}.py": distance for name, distance in distances.items()}


@pytest.mark.parametrize("changed", selection.EVERYWHERE)
def test_shared_files_reach_all_tests_after_nearer_ones(checkout: Path, changed: str) -> None:
    found = selection.near(ImportGraph(checkout), [changed, "tests/test_other.py"])
    assert set(found) == set(ImportGraph(checkout).tests)
    assert found.pop("tests/test_other.py") == 0
    assert set(found.values()) == {selection.FAR}


def test_tests_of_changed_modules_are_nearest_and_parts_leave_time_for_them() -> None:
    graph, seconds = ImportGraph(ROOT), durations.recorded().seconds
    for module, mirror in (
        ("data/csv", "data/test_csv"),
        ("training/gradients/clipping", "training/gradients/test_clipping"),
    ):
        assert graph.mirror(f"src/privmix/{module}.py") == f"tests/{mirror}.py"
        found = selection.select(graph, [f"src/privmix/{module}.py"], 0, seconds)
        assert f"tests/{mirror}.py" in {*found.touched, *found.part}
    # A wide change is bounded by the time, and every test that it reaches is either selected or listed as left.
    found = selection.select(graph, ["src/privmix/errors.py"], 1, seconds)
    assert set(selection.near(graph, ["src/privmix/errors.py"])) <= {*found.part, *found.touched, *found.left}
    assert found.left
    for part in selection.parts(TESTS, seconds):
        assert sum(seconds.get(test, selection.UNRECORDED) for test in part) <= 0.85 * selection.BUDGET


SECONDS = st.dictionaries(st.sampled_from(TESTS[:40]), st.floats(0, 300))


@given(SECONDS, st.integers(0, 2**160), st.floats(0, 3000))
def test_parts_are_equal_time_is_kept_and_the_nearest_come_first(
    seconds: dict[str, float], number: int, budget: float
) -> None:
    class Graph(ImportGraph):
        """Distances by position."""

        tests = TESTS[:40]

        def __init__(self) -> None: ...

        def distances(self, changed: object) -> dict[str, int]:
            return {test: rank // 4 for rank, test in enumerate(self.tests)}

    def cost(tests: list[str]) -> float:
        return sum(seconds.get(test, selection.UNRECORDED) for test in tests)

    found = selection.select(Graph(), [], number, seconds, budget)
    parts = selection.parts(Graph.tests, seconds)
    assert sorted(test for part in parts for test in part) == Graph.tests
    assert max(map(cost, parts)) - min(map(cost, parts)) <= max([selection.UNRECORDED, *seconds.values()]) + 1e-6
    assert found.part == parts[number % selection.PARTS]
    assert sorted([*found.part, *found.touched, *found.left]) == Graph.tests
    assert cost([*found.part, *found.touched]) <= max(budget, cost(found.part)) + 1e-6
    ranks = Graph().distances([])
    assert [ranks[test] for test in found.touched] == sorted(ranks[test] for test in found.touched)
    # A file is left only where nearer files used the time.
    for test in found.left:
        before = [other for other in found.touched if ranks[other] <= ranks[test]]
        assert cost([*found.part, *before, test]) > budget - 1e-6


@dataclass
class Repository:
    place: Path

    def git(self, *arguments: str, hour: int = 0) -> str:
        date = f"@{1_000_000_000 + 3600 * hour} +0000"
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        who = {f"GIT_{role}_{what}": "nobody" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        env, command = os.environ | dates | who | alone, ["git", *arguments]
        return subprocess.run(
            command, cwd=self.place, env=env, capture_output=True, text=True, check=True
        ).stdout.strip()

    def commit(self, name: str, hour: int) -> str:
        (self.place / name).write_text(name, encoding="utf-8")
        self.git("add", "--all")
        self.git("commit", "-q", "-m", name, hour=hour)
        return self.git("rev-parse", "HEAD")


def new_repository(place: Path) -> Repository:
    place.mkdir()
    Repository(place).git("init", "-q", "-b", "main")
    return Repository(place)


def test_a_change_begins_at_the_first_commit_that_the_rules_find(tmp_path: Path) -> None:
    origin = new_repository(tmp_path / "origin")
    first, second = origin.commit("a", 0), origin.commit("b", 5)
    assert selection.base(origin.place) == first, "the oldest commit"
    third = origin.commit("c", 14)
    assert selection.base(origin.place) == first, "twelve hours before"
    fourth = origin.commit("d", 18)
    assert selection.base(origin.place) == second
    assert selection.base(origin.place, named=third) == third

    origin.git("clone", "-q", str(origin.place), str(tmp_path / "clone"))
    assert selection.base(tmp_path / "clone") == second, "the default branch of origin is HEAD itself"
    clone = Repository(tmp_path / "clone")
    clone.git("checkout", "-q", "-b", "change")
    clone.commit("e", 40)
    assert selection.base(clone.place) == fourth, "where HEAD leaves the default branch"

    origin.git("clone", "-q", "--depth", "1", origin.place.as_uri(), str(tmp_path / "shallow"))
    assert selection.base(tmp_path / "shallow") is None
    assert selection.base(tmp_path) is None, "no repository"
    with pytest.raises(SystemExit):
        selection.base(clone.place, named="unknown")


def test_changes_are_those_of_commits_and_of_the_working_tree(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "one")
    begin = repository.commit("a", 0)
    repository.commit("b c", 1)
    repository.git("mv", "a", "d")
    (repository.place / "new é").write_text("", encoding="utf-8")
    assert selection.changed_since(repository.place, begin) == ["a", "b c", "d", "new é"]
