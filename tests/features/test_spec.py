"""What a certificate may say of an extractor: its kind's fields, typed, and few bytes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from privmix.errors import InvalidInput
from privmix.features import base
from privmix.features.base import Extractor, extractor_kinds, get_extractor
from privmix.features.identity import Identity, Pixels
from privmix.features.spec import check_shape, check_spec, feature_names, from_spec, stated_names
from privmix.features.tabular import Tabular
from tests.refusals import refuses

RAW = np.random.default_rng(0).random((20, 64)).tolist()
HASH = "0" * 64
COLUMNS = [{"name": "size", "range": [0, 10]}, {"name": "colour", "categories": ["red", "blue"]}]
SPECS: dict[str, dict[str, Any]] = {
    "pixels": {},
    "identity": {},
    "minilm": {},
    "scattering": {"ycbcr": True, "mirror": True},
    "projected": {"inner": {"name": "pixels", "version": 1, "options": {}}, "dim": 8, "seed": 0},
    "tabular": {"columns": COLUMNS},
    "efficientnet": {"size": 96, "model": "lite2", "layers": "stages", "mirror": True, "precision": "float32"},
    "module": {"model": "net 2.safetensors", "precision": "float32"},
    "vision": {
        "model": "facebook/dinov2-small", "revision": "0123abcd", "pooling": "auto", "normalize": False,
        "image_size": None, "precision": "float32",
    },
    "text": {
        "model": "folder", "revision": None, "normalize": True, "max_length": 128, "prompt": "Query: é\n",
        "precision": "float32",
    },
}  # fmt: skip


def spec(name: str) -> dict[str, Any]:
    kind = extractor_kinds()[name]
    found = {"name": name, "version": kind.version, "options": SPECS[name], **dict.fromkeys(kind.digest_names, HASH)}
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def test_every_kind_is_here() -> None:
    assert set(SPECS) == {name for name, kind in extractor_kinds().items() if kind.__module__.startswith("privmix.")}


@pytest.mark.parametrize("name", SPECS)
def test_real_specs_hold_and_raw_records_in_them_do_not(name: str) -> None:
    honest = spec(name)
    check_spec(honest)
    if not honest["options"] or name == "scattering":
        # These are what extractors write of themselves.
        written = get_extractor(name).spec() if name != "minilm" else honest
        check_spec(written)
    for odd in (RAW, "raw " * 20_000, {"raw": RAW}):
        changed = [{**honest, key: odd} for key in [*honest, "note"]]
        changed += [{**honest, "options": {**honest["options"], option: odd}} for option in honest["options"]]
        for wrong in changed:
            with pytest.raises(InvalidInput):
                check_spec(wrong)


MANY = [{"name": f"column {number}", "bins": list(range(400))} for number in range(60)]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        *(({"version": version}, "extractor's version") for version in (1.0, "1", True, 0, 10**30, None)),
        ({"weights_sha256": HASH}, "extractor spec"),
        ({**spec("module"), "weights_sha256": HASH.replace("0", "A")}, "weights_sha256 of the extractor"),
        ({"name": "tabular", "options": {"columns": MANY}}, "features options"),
        ({"name": "tabular", "options": {"columns": [{"name": "x" * 201, "range": [0, 1]}]}}, "columns of tabular"),
    ],
)
def test_versions_digests_and_sizes_are_those_of_the_kind(changes: dict[str, Any], field: str) -> None:
    with refuses(field):
        check_spec({"name": "pixels", "version": 1, "options": {}, **changes})


@pytest.mark.parametrize("name", ["patches", "whitened"])
def test_features_of_earlier_versions_are_refused_with_the_reason(name: str) -> None:
    ended = {"name": name, "version": 1, "options": {"filters": 16}, "weights_sha256": HASH}
    for spec in (ended, {"name": "projected", "version": 1, "options": {"inner": ended, "dim": 8, "seed": 0}}):
        for read in (check_spec, from_spec):
            with pytest.raises(InvalidInput, match=f"'{name}'.*no longer reads these features"):
                read(spec)


def test_what_is_not_known_here_comes_without_options() -> None:
    check_spec({"name": "of-tomorrow", "version": 7, "options": {}, "weights_sha256": HASH})
    for more in ({"options": {"a": 1}}, {"arrays": {"a": [3]}, "arrays_sha256": HASH}):
        with pytest.raises(InvalidInput):
            check_spec({"name": "of-tomorrow", "version": 7, **more})


@pytest.fixture
def outside() -> Iterator[type[Extractor]]:
    class Outside(Extractor):
        """Of another package, which says nothing of its options."""

        name: ClassVar[str] = "outside"

        def __init__(self, level: Any = 1.0) -> None:
            self.level = level

        def output_dim(self, input_shape: tuple[int, ...]) -> int:
            return 1

        def transform(self, x: NDArray[Any]) -> NDArray[np.float32]:
            return np.zeros((len(x), 1), np.float32)

    yield Outside
    del base._REGISTRY["outside"]


def test_another_packages_extractor_says_what_its_options_are(outside: Any) -> None:
    """Without a word of its own, scalars; with one, what it says, and no more bytes than it says."""

    def given(level: object) -> dict[str, Any]:
        return {"name": "outside", "version": 1, "options": {"level": level}}

    for scalar in (1, 0.5, True, None, "a word"):
        check_spec(given(scalar))
    for odd in ([1.0, 2.0], {"a": 1}, "x" * 201, 10**30, "line\nbreak"):
        with pytest.raises(InvalidInput):
            check_spec(given(odd))

    def check_stated(options: Mapping[str, Any]) -> None:
        if not isinstance(options["level"], list):
            raise InvalidInput("level", options["level"], "a list")

    outside.check_stated = staticmethod(check_stated)
    check_spec(given([1.0, 2.0]))
    with refuses("features options"):
        check_spec(given([1.0] * outside.most_text))


@pytest.mark.parametrize(
    ("spec", "shape", "dim", "fits"),
    [
        ({"name": "pixels"}, (8, 8), 64, True),
        ({"name": "identity"}, (6, 100), 600, True),
        ({"name": "tabular", "options": {"columns": COLUMNS}}, (2,), 3, True),
        ({"name": "minilm"}, (1,), 384, True),
        ({"name": "scattering"}, (28, 28), 3969, True),
        ({"name": "outside"}, (3, 4), 5, True),
        ({"name": "projected", "options": {"inner": {"name": "minilm"}, "dim": 8, "seed": 0}}, (1,), 8, True),
        ({"name": "pixels"}, (), 1, False),
        ({"name": "scattering"}, [], 3969, False),
        ({"name": "identity"}, (2**31 - 1,) * 8, 600, False),
        ({"name": "scattering"}, (2**31 - 1,) * 8, 3969, False),
        ({"name": "tabular", "options": {"columns": COLUMNS}}, (3,), 3, False),
        ({"name": "minilm"}, (2,), 384, False),
        ({"name": "projected", "options": {"inner": {"name": "minilm"}, "dim": 8, "seed": 0}}, (2**30,), 8, False),
    ],
)
def test_a_shape_fits_the_features(spec: dict[str, Any], shape: tuple[int, ...], dim: int, fits: bool) -> None:
    with nullcontext() if fits else refuses("input_shape"):
        check_shape(spec, shape, dim)


@pytest.mark.parametrize("wrong", [None, True, -1, 1.5, float("nan"), 2**70, "x y", [], [None], [{}], {}, {"a": 1}])
def test_a_shape_or_spec_of_wrong_types_is_refused(wrong: Any) -> None:
    inner = {"name": "minilm", "version": 1, "options": wrong or None}
    for spec in (
        wrong,
        {"name": wrong},
        {"name": "tabular", "version": 1, "options": {"columns": wrong}},
        {"name": "projected", "version": 1, "options": {"inner": wrong, "dim": 8, "seed": 0}},
        {"name": "projected", "version": 1, "options": {"inner": inner, "dim": 8, "seed": 0}},
        *({"name": name, "version": 1, "options": wrong or None} for name in ("pixels", "tabular", "outside")),
    ):
        with pytest.raises(InvalidInput):
            check_shape(spec, (1,), 8)
    for name in ("identity", "minilm", "scattering", "outside"):
        for shape in (wrong, [wrong], [4, wrong], (0,), (-4, -4)):
            with pytest.raises(InvalidInput):
                check_shape({"name": name}, shape, 16)


NAMED_COLUMNS: dict[str, Any] = {
    "age": {"bins": [25, 35.5, 50]},
    "id": {"ignore": True},
    "income": {"range": [0, 1e6], "log": True, "missing": 0},
    "sex": {"categories": ["F", "M"], "missing_token": "?"},
}
NAMES = ("age < 25", "25 <= age < 35.5", "35.5 <= age < 50", "age >= 50", "income", "sex=F", "sex=M", "sex missing")


def test_columns_and_categories_name_a_tables_features() -> None:
    table = Tabular(NAMED_COLUMNS)
    assert table.feature_names == NAMES
    assert stated_names(table.spec(), len(NAMES)) == NAMES
    assert len(NAMES) == table.output_dim((len(NAMED_COLUMNS) - 1,))


def test_columns_of_numbers_keep_their_names() -> None:
    named = Identity().with_columns(("age", "dose"))
    assert named.feature_names == ("age", "dose")
    assert from_spec(named.spec()).feature_names == ("age", "dose")
    check_spec(named.spec())
    # What a certificate has no room for is left out, and no release fails for it.
    for columns in (None, ("a" * 201, "b"), tuple(f"{number:0200}" for number in range(400))):
        assert Identity().with_columns(columns).options() == {}
    assert Pixels().with_columns(("age", "dose")).feature_names == ()
    with refuses("input shape for identity"):
        named.output_dim((3,))


def test_others_are_numbered() -> None:
    assert feature_names(Pixels().spec(), 3) == ("feature 0", "feature 1", "feature 2")
    for kind in extractor_kinds().values():
        assert kind.names_of({}) == () if kind is not Tabular else True


def test_names_differ_and_stay_small() -> None:
    # A column may be named like a category of another one.
    clash = Tabular({"a": {"categories": ["b=c", "d"]}, "a=b": {"categories": ["c", "d"]}, "a=d": {"range": [0, 1]}})
    found = stated_names(clash.spec(), 5)
    assert found == ("a=b=c", "a=d", "a=b=c (2)", "a=b=d", "a=d (2)")
    wide = Tabular({"x" * 200: {"categories": list(range(9000))}})
    check_spec(wide.spec())
    assert stated_names(wide.spec(), 9000) == ()


@pytest.mark.parametrize("columns", [5, "ab", [], ["a", "a"], ["a", 1], [""], ["a" * 201], {"a": 1}, [["a"]]])
def test_a_strangers_columns_are_names(columns: Any) -> None:
    spec = {"name": "identity", "version": 1, "options": {"columns": columns}}
    for read in (check_spec, from_spec):
        with refuses("columns of identity"):
            read(spec)
    with refuses("extractor"):
        stated_names({"name": "identity", "options": {"columns": ["a", "b"]}}, 3)
