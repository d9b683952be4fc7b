"""The house stands: a floor imports only the floors listed for it, and only what it was given."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "privmix"

# Floor -> floors (or single modules of a floor) it may import. The modules beside the floors are for all.
GROUND = {"accounting", "mechanisms", "data", "features", "certificate", "ledger"}
SHARED = {"plans", "publication", "engine", "learning", "audits"}
LIBRARY = {*GROUND, *SHARED, "designs", "planning", "releases", "training", "attacks", "reports"}
ALLOWED: dict[str, set[str]] = {
    "accounting": set(),
    "mechanisms": {"accounting.events", "accounting.base"},
    "data": set(),
    "features": {"data"},
    "certificate": {"accounting", "mechanisms.plan"},
    "ledger": {"accounting"},
    "plans": {"accounting", "mechanisms"},
    "publication": {"mechanisms.clipping", "certificate.certificate", "plans"},
    "engine": {"mechanisms", "data", "plans", "publication"},
    # No mechanism, no data: learning costs no privacy.
    "learning": {"plans", "publication"},
    "audits": {"accounting", "mechanisms", "plans", "publication", "engine"},
    # By the part that each file plays: see ROLES.
    "designs": {"accounting", "mechanisms", "plans", "publication", "engine", "learning", "audits"},
    "planning": {"accounting", "mechanisms", "plans", "learning", "designs"},
    "releases": {*GROUND - {"ledger"}, "plans", "publication", "engine", "audits", "designs", "planning"},
    "training": {"accounting", "mechanisms", "data", "features", "certificate", "audits"},
    "attacks": {
        *("accounting", "mechanisms", "plans", "publication", "engine", "learning", "audits", "releases", "training")
    },
    "reports": set(),
    "jobs": LIBRARY,
    "commands": {*LIBRARY, "jobs"},
    "studio": {
        *("accounting", "mechanisms", "data", "features", "certificate", "ledger", "plans", "planning", "reports"),
        *("jobs", "commands"),
    },
    "cli": {"certificate", "jobs", "commands"},
    # Everything that is public: see the tests of the wing below.
    "research": {*LIBRARY, "jobs", "commands", "cli"},
}
# What a file of a family of designs may import by its name, beside its own family; what has no such name plans.
ROLES: dict[str, set[str]] = {
    "plan": {"accounting", "mechanisms", "plans"},
    "engine": {"mechanisms", "plans", "publication", "engine"},
    "released": {"mechanisms", "plans", "publication", "learning"},
    "evidence": {"mechanisms", "plans", "publication", "audits"},
    "learner": {"plans", "publication", "learning"},
    "audit": {"mechanisms", "plans", "publication", "engine", "audits"},
    "worst_case": {"mechanisms", "plans", "publication", "engine", "audits"},
}
# Families that go on from another one.
GOES_ON = {"corrected": {"moments"}, "stages": {"moments"}, "series": {"moments"}}
BANNED_PACKAGES: dict[str, set[str]] = {"accounting": {"torch", "sklearn", "pandas"}, "ledger": {"torch"}}

# Modules beside the floors.
BESIDE = (
    "_lazy", "_registry", "bars", "devices", "errors", "folders", "fields",
    "optimisers", "named", "options", "packages", "plugins", "progress", "rounding",
    "scratch", "shown", "untrusted", "world",
)  # fmt: skip

# The front door lends names of every floor, lazily; of the command line and the studio none.
FRONT_DOOR = set(ALLOWED) - {"cli", "research", "studio"}

FILES = sorted(SOURCE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """A file of the package, parsed once for all rules."""
    return ast.parse(path.read_text(encoding="utf-8"))


def told(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@cache
def names_in(path: Path) -> list[str]:
    """What a file imports, name by name, inside functions and for type checkers too."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def own_names(path: Path) -> list[list[str]]:
    """The parts, below the package, of what a file imports of privmix."""
    parts = [name.split(".") for name in names_in(path)]
    return [rest for first, *rest in parts if first == "privmix"]


def imported_files(path: Path) -> set[Path]:
    """Files of the package that a file imports."""
    places = [SOURCE.joinpath(*parts[:length]) for parts in own_names(path) for length in (len(parts), len(parts) - 1)]
    found = {file for place in places for file in (place.with_suffix(".py"), place / "__init__.py") if file.exists()}
    return found - {path}


def floor_of(path: Path) -> str | None:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else None


@pytest.mark.parametrize("floor", [*ALLOWED, None])
def test_imports_stay_on_allowed_floors(floor: str | None) -> None:
    assert {floor_of(path) for path in FILES} <= {*ALLOWED, None}
    for path in (path for path in FILES if floor_of(path) == floor):
        allowed = {"__init__.py": FRONT_DOOR, "__main__.py": {"cli"}}.get(path.name, set())
        allowed = {*BESIDE, "__version__", floor, *(allowed if floor is None else ALLOWED[floor])}
        strays = [parts for parts in own_names(path) if not {parts[0], ".".join(parts[:2])} & allowed]
        assert not strays, f"{told(path)}: {floor} may not import {strays}"
        others = {name.split(".")[0] for name in names_in(path)}
        assert not others & BANNED_PACKAGES.get(floor or "", set()), told(path)


def circle(arrows: dict[Path, set[Path]]) -> list[Path]:
    """Files that import one another in a circle, or none."""
    left, before = dict(arrows), len(arrows) + 1
    while len(left) < before:
        before, reached = len(left), set().union(*left.values())
        # Whoever imports nobody that is left is in no circle, nor is who is imported by none of them.
        left = {file: ends for file, ends in left.items() if ends & set(left) and file in reached}
    return sorted(left)


def test_no_files_import_one_another_in_a_circle() -> None:
    """Imports inside functions and for type checkers are imports too."""
    found = circle({path: imported_files(path) for path in FILES if path.name != "__init__.py"})
    assert [told(path) for path in found] == []
    first, second, third = (Path(name) for name in "abc")
    assert circle({first: {second}, second: {first}, third: {first}}) == [first, second]


def role_of(path: Path) -> str:
    """The part that a file of a family plays."""
    if path.stem == "replace_one":
        return "worst_case"
    return next((role for role in ROLES if path.stem.endswith(role)), "plan")


RIVALS = ("research", "rivals")
FAMILIES = sorted([*(SOURCE / "designs").glob("*/*.py"), *SOURCE.joinpath(*RIVALS).glob("*/*.py")])


@pytest.mark.parametrize("path", FAMILIES, ids=told)
def test_files_of_a_design_keep_to_their_part(path: Path) -> None:
    own, allowed = path.parent.name, ROLES[role_of(path)]
    for target in own_names(path):
        if target[0] in BESIDE:
            continue
        if tuple(target[:2]) == RIVALS:
            assert target[2] == own, f"{target}: of another family"
        elif target[0] == "designs" and path.relative_to(SOURCE).parts[:2] == RIVALS:
            # They are compared with those of privmix, and may go on from them.
            assert role_of(SOURCE.joinpath(*target[:3]).with_suffix(".py")) == role_of(path)
        elif target[0] == "designs":
            assert target[1] in {own, *GOES_ON.get(own, ())}, f"{target}: of another family"
        else:
            assert target[0] in allowed, f"{target}: no part of a {role_of(path)}"


def test_packages_of_training_are_floors_too() -> None:
    """Views are made without gradients, models without either, and public methods know no views but augmentation."""
    allowed = {
        "models": {"models"},
        "gradients": {"gradients", "models"},
        "views": {"views"},
        "public": {"public", "gradients", "views"},
    }
    for package, others in allowed.items():
        for path in (SOURCE / "training" / package).glob("*.py"):
            own = {file.relative_to(SOURCE).parts for file in imported_files(path)}
            above = {parts[1] for parts in own if parts[0] == "training" and len(parts) > 2}
            assert above <= others, f"{path} imports {above - others}"


WING = sorted((SOURCE / "research").rglob("*.py"))


def test_research_lives_on_public_names() -> None:
    """As any other package does."""
    for path in WING:
        for parts in own_names(path):
            assert not any(part.startswith("_") for part in parts), path
            assert parts[0] != "cli" or path.name == "verb.py", path
    # Nothing else names it, not in a text either, by which something could be imported.
    others = [path for path in FILES if path not in WING]
    assert [told(path) for path in others if "privmix.research" in path.read_text(encoding="utf-8")] == []


def flags_in(path: Path) -> list[str]:
    """Flags in the texts of a file, but for those of commands that are spelled out: ``privmix fit REL --out M``."""
    tree = tree_of(path)
    whole = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    within = {id(part) for node in whole for part in ast.walk(node)}
    whole += [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in within]
    texts = ["".join(str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)) for node in whole]
    lines = [line for text in texts for line in text.splitlines()]
    return [line for line in lines if re.search(r"(?<![\w(-])--[a-z]", line.split("privmix ")[0])]


def test_the_library_names_fields_and_no_flags() -> None:
    """privmix.cli.flags makes flags of them: who writes Python has none to mend."""
    library = [path for path in FILES if floor_of(path) != "cli" and not (path in WING and path.name == "verb.py")]
    assert {told(path): lines for path in library if (lines := flags_in(path))} == {}
