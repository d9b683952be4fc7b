"""A design that releases something else than rows of mixed records, all of it in this one file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from privmix.accounting import Adjacency, Event, Gaussian
from privmix.audits.audit import audit_plan
from privmix.audits.evidence import Law, RowLaw
from privmix.engine.records import RecordSource, tiles_of
from privmix.engine.rows import Engine, RowBlock
from privmix.engine.tiles import TileReader
from privmix.mechanisms.noise import gaussian_on_lattice
from privmix.mechanisms.streams import SecretStreams
from privmix.planning import ReleaseConfig
from privmix.plans.design import Beside, Design
from privmix.plans.plan import BasePlan
from privmix.plans.registry import DESIGNS, register
from privmix.plans.setting import AssumedRecords, MomentForecast, Setting
from privmix.progress import Progress
from privmix.publication.dataset import RecordTransform
from privmix.releases.folder import load_release
from privmix.releases.verify import verify_release
from tests.refusals import refuses
from tests.releases.helpers import CLASSES, make_records, write_release

RECORDS, DIM = 300, 5


@dataclass(frozen=True, kw_only=True)
class SumsPlan(BasePlan):
    """The clipped records of each class, summed, with Gaussian noise."""

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.ADD_REMOVE

    @property
    def main_event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def noise_std(self) -> dict[str, float]:
        return {"sums": self.clip_norm * self.noise_multiplier}


@dataclass(frozen=True)
class ClassSums(Design[SumsPlan]):
    name = "class-sums"
    released = "class sums"
    lost = "Sums hold nothing beyond means."
    engines: ClassVar = {"local": f"{__name__}:SumsEngine"}
    row_law = f"{__name__}:means_law"
    plan_type = SumsPlan
    mixes_all_classes = False

    def check(self, setting: Setting) -> None:
        pass

    @property
    def centre(self) -> str:
        return "none"

    def plan(self, setting: Setting, noise_multiplier: float, centre_noise_multiplier: float | None) -> SumsPlan:
        return SumsPlan(
            design=self.name,
            rows=len(setting.classes),
            noise_multiplier=noise_multiplier,
            lattice_bits=setting.lattice_bits,
            **setting.shared(centre_noise_multiplier),
        )

    def settings(self) -> dict[str, Any]:
        return {"design": self.name}

    @classmethod
    def forecast(cls, plan: SumsPlan, assumed: AssumedRecords) -> MomentForecast:
        return MomentForecast(None, assumed.noise * plan.noise_multiplier)

    @classmethod
    def beside(cls, plan: SumsPlan) -> Beside:
        return Beside("sums.safetensors", {"sums": (plan.num_classes, plan.dim)}, plan.num_classes)

    @classmethod
    def mechanism(cls, plan: SumsPlan, multiplier: str) -> str:
        return f"Sums of each class with Gaussian noise, {multiplier} times what a record can change."

    @classmethod
    def card(cls, plan: SumsPlan, extractor: str) -> str:
        return f"{plan.rows} rows, each the noisy mean of a class.\n"

    @classmethod
    def summary(cls, plan: SumsPlan, about: str) -> str:
        return f"Noisy class sums of {about}"

    @classmethod
    def shown(cls, plan: SumsPlan) -> dict[str, str]:
        return {"rows": str(plan.rows)}


class SumsEngine(Engine):
    def __init__(self, plan: SumsPlan, records: RecordSource, streams: SecretStreams, **machine: Any) -> None:
        self._plan, self._streams = plan, streams
        self._reader = TileReader(plan, tiles_of(records), workers=1)

    @property
    def beside(self) -> dict[str, Any]:
        return {"sums": self._sums}

    def rows(self, progress: Progress | None = None, *, first: int = 0) -> Iterator[RowBlock]:
        self._streams.claim()
        plan = self._plan
        self._transform = RecordTransform(plan.clip_norm)
        features, labels = self._reader.read(0)
        steps = plan.lattice.quantise(self._transform(features) / plan.clip_norm)
        sums = np.stack([steps[labels == label].sum(axis=0) for label in range(plan.num_classes)])
        scale = plan.noise_multiplier / plan.lattice.step
        sums = sums + gaussian_on_lattice(self._streams.generator("class sums"), sums.shape, scale)
        self._sums = (sums * plan.lattice.step * plan.clip_norm).astype(np.float32)
        means = self._sums * np.float32(plan.num_classes / plan.records)
        yield RowBlock(0, means, np.eye(plan.num_classes, dtype=np.float32))


def means_law(plan: SumsPlan, beside: Any) -> RowLaw:
    return RowLaw(Law(plan.noise_std["sums"] * plan.num_classes / plan.records, 0.0))


@pytest.fixture
def class_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DESIGNS, "_known", dict(DESIGNS._known))
    register(ClassSums)


def test_it_plans_releases_and_verifies(class_sums: None, tmp_path: Path) -> None:
    plan = ReleaseConfig(RECORDS, DIM, CLASSES, "class-sums").calibrate(2.0, 1e-3)
    records = make_records(RECORDS, DIM)
    write_release(tmp_path / "REL", plan, records, 0)
    verified = verify_release(tmp_path / "REL")
    assert verified.recomputed_epsilon <= 2.0
    released = load_release(tmp_path / "REL")
    np.testing.assert_allclose(released.beside["sums"] * 3 / RECORDS, released.x, rtol=1e-6)
    assert (released.mixup_degree, released.noise_std_x, released.moments) == (1.0, 0.0, None)
    assert "noisy mean of a class" in (tmp_path / "REL" / "README.md").read_text()
    (tmp_path / "REL" / "sums.safetensors").unlink()
    with pytest.raises(Exception, match=r"sums\.safetensors"):
        verify_release(tmp_path / "REL")
    with refuses("engine"):
        write_release(tmp_path / "RAY", plan, records, 0, engine="ray")


def test_without_a_worst_case_it_is_not_audited_as_another(class_sums: None) -> None:
    plan = ReleaseConfig(RECORDS, DIM, CLASSES, "class-sums").with_noise(1.0)
    with refuses("design"):
        audit_plan(plan, 8.0, 1e-2, runs=100)
