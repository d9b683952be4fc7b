"""Several processes give what one gives, and only one of them can make the noise."""

import textwrap
from pathlib import Path

import numpy as np
import pytest

from privmix.mechanisms.streams import SecretStreams
from tests.processes import two_processes
from tests.training.runs import files, job_of, private, public, weights_of

COMMON = """
import gc, os, sys
from pathlib import Path
import numpy as np
import torch
torch.set_num_threads(1)
from privmix.errors import InvalidInput
from privmix.mechanisms.streams import SecretStreams
from privmix.training import dp_sgd
from privmix.training.gradients.config import ExecutionConfig
from privmix.training.public.config import ExtendedConfig, WarmUpConfig
from privmix.training.run import TrainingRun
from privmix.world import current_world
from tests.training.runs import config_of, job_of, private, public, weights_of
root = Path(sys.argv[1])
"""

AGREE = """
def keys():
    return [bytes(found._key) for found in gc.get_objects() if isinstance(found, SecretStreams) and found._key]

class Killed(BaseException):
    pass

with current_world() as world:
    assert world.size == 2
    def streams(seed):
        return SecretStreams.from_seed(seed) if world.is_head else None

    assert world.share(b"abc" if world.is_head else b"") == b"abc"
    assert world.share(b"" if world.is_head else b"else") == b""
    assert world.sum(torch.tensor([1.0 + world.rank])).item() == 3.0

    # The key is rank 0's; the other derives the sampling streams from what it is given, and nothing more.
    held = []
    post_init = dp_sgd.DpSgd.__post_init__
    def seen(self):
        post_init(self)
        held.append((self.streams, self.batches.streams, keys()))
    dp_sgd.DpSgd.__post_init__ = seen

    out = {}
    for name, config in CONFIGS.items():
        given = {"public": public()} if config.scenario != "cold" else {}
        model = job_of(config, **given).run(private(), streams=streams(5), world=world)
        out[name] = weights_of(model).numpy()
        assert model.certificate["insecure_seed"], "every process says so"
    master = bytes(SecretStreams.from_seed(5)._key)
    sampling = SecretStreams.from_seed(5).derive(dp_sgd.SAMPLING).share()
    for own, shared, known in held:
        assert (own is not None) == world.is_head
        assert (master in known) == world.is_head
        assert sampling in known

    # Killed and resumed by two processes; only rank 0 knows where it stopped.
    config = CONFIGS["linear"]
    job = job_of(config)
    run = None
    if world.is_head:
        import privmix.training.run as run_module
        run_module.CHECKPOINT_SECONDS = 0.0
        run = TrainingRun(root / "model", job.settings(), streams=SecretStreams.from_seed(5))
    step = dp_sgd.DpSgd.step
    def stops(self, number):
        if number == 3:
            raise Killed
        step(self, number)
    dp_sgd.DpSgd.step = stops
    try:
        job.run(private(), run=run, world=world)
    except Killed:
        pass
    dp_sgd.DpSgd.step = step
    if world.is_head:
        run.__exit__(None, None, None)
        run = TrainingRun(root / "model", job.settings(), resume=True)
        assert run.load()[0] == 3
    out["resumed"] = weights_of(job.run(private(), run=run, world=world)).numpy()
    np.savez(root / f"rank{world.rank}.npz", **out)
"""

CONFIGS = """
CONFIGS = {
    "linear": config_of(),
    "cnn": config_of("cnn-relu", execution=ExecutionConfig("loop")),
    "extended": config_of(scenario="extended", warm_up=WarmUpConfig(epochs=1),
                          extended=ExtendedConfig("adadps", batch_size=8)),
}
"""

FAILS = """
with current_world() as world:
    step = dp_sgd.DpSgd.step
    def fails(self, number):
        if number == 2 and not world.is_head:
            os._exit(3)
        step(self, number)
    dp_sgd.DpSgd.step = fails
    job_of().run(private(), streams=SecretStreams.from_seed(5) if world.is_head else None, world=world)
"""


OTHERS = """
with current_world() as world:
    records = private()
    if world.rank == 1:
        x, labels = (part[::-1].copy() for part in (records.x, records.labels))
        records = type(records).of(x, labels, classes=records.classes)
    try:
        job_of().run(records, streams=SecretStreams.from_seed(5) if world.is_head else None, world=world)
    except InvalidInput as error:
        assert "same order" in str(error)
        (root / f"refused{world.rank}").touch()
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    root = tmp_path_factory.mktemp("world")
    done = two_processes(COMMON + CONFIGS + AGREE, root)
    assert (root / "rank0.npz").exists(), "\n".join(process.stdout for process in done)
    assert (root / "rank1.npz").exists(), "\n".join(process.stdout for process in done)
    assert [process.returncode for process in done] == [0, 0]
    assert set(files(root / "model")) == {"model.json", "certificate.json", "weights.safetensors", "MODEL_CARD.md"}
    assert not (root / ".model.run").exists()
    return [dict(np.load(root / f"rank{rank}.npz")) for rank in (0, 1)]


@pytest.mark.parametrize("name", ["linear", "cnn", "extended", "resumed"])
def test_two_processes_give_what_one_gives(name: str, two: list[dict[str, np.ndarray]]) -> None:
    space: dict[str, object] = {}
    exec(textwrap.dedent(COMMON.replace("root = Path(sys.argv[1])", "") + CONFIGS), space)
    config = space["CONFIGS"]["linear" if name == "resumed" else name]  # type: ignore[index]
    given = {"public": public()} if config.scenario != "cold" else {}
    alone = weights_of(job_of(config, **given).run(private(), streams=SecretStreams.from_seed(5))).numpy()
    np.testing.assert_array_equal(two[0][name], two[1][name], err_msg="processes end with the same weights")
    assert np.linalg.norm(two[0][name] - alone) <= 1e-6 * np.linalg.norm(alone)


def test_a_process_that_fails_does_not_leave_the_other_waiting(tmp_path: Path) -> None:
    done = two_processes(COMMON + FAILS, tmp_path)
    assert "ProcessLost" in done[0].stdout
    assert (done[0].returncode, done[1].returncode) == (1, 3)


def test_records_in_another_order_are_refused(tmp_path: Path) -> None:
    """Shards of two orders may hold a record twice, which would then count for two."""
    done = two_processes(COMMON + OTHERS, tmp_path)
    assert (tmp_path / "refused1").exists(), "\n".join(process.stdout for process in done)
    assert done[1].returncode == 0
