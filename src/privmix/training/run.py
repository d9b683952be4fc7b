"""The private phase of a run that survives a kill: steps of DP-SGD from the last checkpoint on.

In addition to key and notes, its folder holds

* ``run.execution``: the gradient strategy and the chunk, where they were chosen by measurement;
* ``run.state``: weights, optimiser and step, replaced as a whole.

Batches, views and noise are functions of the key and the step. A resumed run repeats the steps after its last
checkpoint with the same noise: the final weights are those of a run without the kill. On the CPU this is bit for bit,
with as many threads; on GPUs up to the order of additions.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as dump_tensors
from torch import Tensor
from torch.nn.functional import cross_entropy

from privmix.certificate.certificate import CERTIFICATE_FILE
from privmix.errors import InvalidInput, check_choice
from privmix.folders import FolderKind
from privmix.mechanisms.run import Run
from privmix.mechanisms.run_folder import CertifiedContents
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress
from privmix.rounding import rounded_up
from privmix.training.certificate import CARD_FILE, WEIGHTS_FILE
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import DpSgd, Optimiser, StepObserver, TrainingRecords
from privmix.training.examples import ModelFacts, PublicData
from privmix.training.gradients.config import AUTO, ExecutionConfig
from privmix.training.gradients.execution import Chunks, choose_strategy, fitting_chunk
from privmix.training.gradients.parameters import Clipping, FlatParameters
from privmix.training.gradients.strategies import STRATEGIES, GradientStrategy
from privmix.training.models.base import Classifier
from privmix.training.plan import TrainingPlan
from privmix.training.public.base import ExtendedMethod, settings_of
from privmix.training.public_phase import PublicPhase
from privmix.training.trained import MODEL_FILE, shaped
from privmix.training.views.pipeline import MicrobatchMixer, ViewPipeline
from privmix.untrusted import read_json
from privmix.world import World

MODEL_FOLDER: Final = FolderKind("out", "a trained model", frozenset({MODEL_FILE, CERTIFICATE_FILE}))
_EXECUTION, _STATE = "run.execution", "run.state"
_STEP: Final = "step"
# Seconds between checkpoints.
CHECKPOINT_SECONDS: Final = 30.0


class TrainingRun(Run):
    """The run that makes a trained model; arguments, guarantees and errors are those of :class:`Run`."""

    kind: ClassVar[FolderKind] = MODEL_FOLDER
    packages: ClassVar[tuple[str, ...]] = (*Run.packages, "torch")
    _saved_at: float | None = None

    @property
    def leaves(self) -> frozenset[str]:
        return frozenset({_EXECUTION, _STATE, MODEL_FILE, WEIGHTS_FILE, CARD_FILE})

    @classmethod
    def stated(cls, folder: Path) -> CertifiedContents:
        found = read_json(folder / CERTIFICATE_FILE, CERTIFICATE_FILE)
        try:
            # Settings that the certificate has at places of its own.
            settings = {**found["settings"], "plan": found["plan"], "public_data": found["public_data"]}
            files: dict[str, str | None] = {WEIGHTS_FILE: str(found["files"][0]["sha256"]), MODEL_FILE: None}
            files[CERTIFICATE_FILE] = None
            # Runs that an earlier build finished have no card.
            files |= {CARD_FILE: None} if (folder / CARD_FILE).is_file() else {}
            return CertifiedContents(str(found["id"]), settings, files)
        except (KeyError, TypeError, IndexError):
            raise InvalidInput(CERTIFICATE_FILE, "other content", "the certificate of a trained model") from None

    def load(self) -> tuple[int, dict[str, Tensor]]:
        """Completed steps, and the state after them; (0, {}) for a run without a checkpoint."""
        kept = self.kept(_STATE)
        return (0, {}) if kept is None else unpack_state(kept)

    def save(self, step: int, state: Callable[[], Mapping[str, Tensor]], *, now: bool = False) -> None:
        """Keep the state after ``step`` steps, if the last time was long enough ago or ``now``."""
        if self._saved_at is None:
            self._saved_at = time.monotonic()
        if now or time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS:
            self.keep(_STATE, pack_state(step, state()))
            self._saved_at = time.monotonic()


def pack_state(step: int, state: Mapping[str, Tensor]) -> bytes:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    return bytes(dump_tensors({**tensors, _STEP: torch.tensor(step)}))


def unpack_state(content: bytes) -> tuple[int, dict[str, Tensor]]:
    tensors = load_tensors(content)
    return int(tensors.pop(_STEP)), tensors


# Observers of progress get public figures alone: no other value leaves a step.
_AT_ONCE: Final = 256


@dataclass(frozen=True)
class Watched:
    """Public figures for callbacks after a step.

    Formal guarantees:
        * Public: nothing in it is computed from a private record but by way of weights that the plan makes private.
        * An upper bound: ``epsilon`` is the accountant's bound for the steps so far, and at most the target.

    Attributes:
        step: completed steps, from 1.
        steps: steps in all.
        epsilon: spent so far, at ``delta``.
        delta: of the plan.
        metrics: ``"validation/accuracy"`` and ``"validation/loss"`` of public ``validation`` data, if any, of the
            current model.
    """

    step: int
    steps: int
    epsilon: float
    delta: float
    metrics: Mapping[str, float] = field(default_factory=dict)


Callback = Callable[[Watched], object]


class Watch:
    """Callbacks, which are functions of :class:`Watched`, and validation data."""

    def __init__(self, callbacks: Any, validation: PublicData | None = None, facts: ModelFacts | None = None) -> None:
        several: Sequence[Any] = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
        self._callbacks: list[Callback] = [one for one in several if one is not None]
        for one in self._callbacks:
            if not callable(one):
                raise InvalidInput("callbacks", type(one).__name__, "functions of a Watched")
        if validation is not None and not self._callbacks:
            raise InvalidInput("validation", "public data", "none without `callbacks`, which use them")
        self._validation, self._facts = validation, facts

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def tell(self, step: int, steps: int, epsilon: float, delta: float, network: Classifier) -> None:
        """Call each; ``network`` holds the weights that a model would have now."""
        seen = Watched(step, steps, epsilon, delta, self._metrics(network))
        for callback in self._callbacks:
            callback(seen)

    @torch.no_grad()
    def _metrics(self, network: Classifier) -> dict[str, float]:
        if self._validation is None:
            return {}
        assert self._facts is not None
        device, training = next(network.parameters()).device, network.training
        network.eval()
        loss = right = 0.0
        x, targets = self._validation.x, self._validation.targets
        for part, wanted in zip(torch.split(x, _AT_ONCE), torch.split(targets, _AT_ONCE), strict=True):
            logits = network(shaped(part.to(device), network, self._facts)).float()
            loss += float(cross_entropy(logits, wanted.to(device), reduction="sum"))
            right += float((logits.argmax(1) == wanted.to(device).argmax(1)).sum())
        network.train(training)
        return {"validation/accuracy": right / len(x), "validation/loss": loss / len(x)}


_CHUNK, _METHOD = "chunk", "method."
# Number of times a run that epsilon so far is computed: a price takes a fraction of a second.
_PRICES: Final = 20


class PrivatePhase:
    """The private steps of a plan; settings, network and public method are checked before a record is read."""

    def __init__(
        self,
        config: TrainingConfig,
        plan: TrainingPlan,
        network: Classifier,
        input_shape: tuple[int, ...],
        views: ViewPipeline,
        public: PublicPhase,
    ) -> None:
        self._config, self._plan, self._network, self._input = config, plan, network, input_shape
        self._views, self._public = views, public
        self._flat = FlatParameters(network)
        self._clipping = Clipping(config.clip_norm, config.clipping)
        # Views of a record, or of the records of a person that are in a step.
        self._views_of_unit = views.views * (plan.per_person or 1)
        method = public.method(plan.steps)
        if method is not None:
            # A microbatch of one record that is to be mixed has a single view.
            least, wanted = 1 if config.microbatch_mixes else self._views_of_unit, config.extended.perturbations
            if "perturbations" in settings_of(config.extended.method) and wanted > least:
                raise InvalidInput("perturbations", wanted, f"at most {least}, the views of a record")
        if config.execution.strategy != AUTO:
            # Raises for a network that the strategy does not fit.
            self._strategy(config.execution)

    def run(
        self,
        records: TrainingRecords,
        *,
        start: int,
        state: Mapping[str, Tensor],
        run: TrainingRun | None,
        streams: SecretStreams | None,
        world: World,
        progress: Progress,
        observers: Sequence[StepObserver],
        watch: Watch | None = None,
    ) -> Tensor:
        """Take the steps from ``start`` on, and return the weights to evaluate; the network holds the first weights."""
        # ``run`` and ``streams`` exist on rank 0 only. ``watch`` gets public figures at about twenty of the steps, the
        # last among them. Raises InvalidInput where weights or outputs are not finite, OutOfMemory where a chunk does
        # not fit.
        optimiser = Optimiser(self._flat, self._config.optimiser, self._plan.steps)
        method = self._public.method(self._plan.steps)
        if state:
            # The loader of a tensor moves it where it belongs: Adam, for one, counts its steps on the CPU.
            optimiser.load({name: tensor for name, tensor in state.items() if not name.startswith(_METHOD)})
            if method is not None:
                own = {k.removeprefix(_METHOD): tensor for k, tensor in state.items() if k.startswith(_METHOD)}
                method.load_state_dict(own)
        elif run is not None and self._public.warms_up:
            run.save(0, lambda: _state(optimiser, method, None), now=True)
        if world.is_head:
            # Before strategies are measured and the first step is taken, which may last.
            progress("private steps", start, self._plan.steps)
        chunks, gradients = self._execution(run, world, state.get(_CHUNK))
        mixes, keep = self._config.microbatch_mixes, self._config.microbatch_keep
        trainer = DpSgd(
            plan=self._plan,
            records=records,
            views=self._views,
            gradients=gradients,
            optimiser=optimiser,
            streams=streams,
            method=method,
            chunks=chunks,
            world=world,
            mixer=MicrobatchMixer(self._network.classes, self._views.layout, mixes, keep) if mixes else None,
            observers=observers,
        )
        every = max(1, self._plan.steps // _PRICES)
        stage = ""
        for step in range(start, self._plan.steps):
            trainer.step(step)
            done = step + 1
            looked_at = done in (start + 1, self._plan.steps) or done % every == 0
            if not optimiser.finite or (looked_at and not self.answers()):
                allowed = f"a smaller one: after {done} steps weights or outputs are no finite numbers"
                raise InvalidInput("learning_rate", self._config.optimiser.learning_rate, allowed)
            if world.is_head:
                if looked_at:
                    # Up: what is shown must not be less than what was spent.
                    stage = f"private steps (ε {rounded_up(self._plan.cost(done).epsilon)} after {done})"
                progress(stage, done, self._plan.steps)
                if watch and looked_at:
                    self._tell(watch, done, optimiser)
            if run is not None:
                run.save(done, lambda: _state(optimiser, method, chunks), now=done == self._plan.steps)
        return optimiser.evaluated

    def _tell(self, watch: Watch, done: int, optimiser: Optimiser) -> None:
        """Report on the weights that a model would have now; training then goes on with its own weights unchanged."""
        own = self._flat.get()
        self._flat.set(optimiser.evaluated)
        try:
            cost = self._plan.cost(done)
            watch.tell(done, self._plan.steps, cost.epsilon, self._plan.delta, self._network)
        finally:
            self._flat.set(own)

    @torch.no_grad()
    def answers(self) -> bool:
        """Whether outputs for public random inputs are numbers: finite weights may be too large to give any."""
        x = torch.rand(4, *self._input, generator=torch.Generator().manual_seed(0)).to(self._flat.device)
        return bool(torch.isfinite(self._network(x)).all())

    def _strategy(self, config: ExecutionConfig) -> GradientStrategy:
        given = self._network, self._flat, self._clipping, self._input, self._views_of_unit, self._network.classes
        return choose_strategy(config, *given)

    def _execution(self, run: TrainingRun | None, world: World, kept: Tensor | None) -> tuple[Chunks, GradientStrategy]:
        """Chunks and strategy: measured or fitted to free memory once a run, by one process for all."""
        # Sums in other chunks or by another strategy differ in their last bits, and so would a resumed run's weights. A
        # chunk size from the user overrides the run's.
        config = self._config.execution
        content = None if run is None else run.kept(_EXECUTION)
        if world.is_head and content is None:
            found = self._strategy(config)
            chunk = config.chunk or fitting_chunk(found, self._input, self._views_of_unit)
            content = json.dumps({"strategy": found.name, "chunk": chunk}).encode()
            if run is not None:
                run.keep(_EXECUTION, content)
        chosen = json.loads(world.share(content or b""))
        gradients = self._strategy(
            replace(config, strategy=check_choice("strategy", chosen.get("strategy"), STRATEGIES))
        )
        if config.compile:
            gradients.model = torch.compile(self._network)  # type: ignore[assignment]
        size = config.chunk or int(chosen["chunk"] if kept is None else kept)
        return Chunks(size, fixed=config.chunk is not None), gradients


def _state(optimiser: Optimiser, method: ExtendedMethod | None, chunks: Chunks | None) -> dict[str, Tensor]:
    """All that the next step needs; the chunk, because it may have been halved since the run began."""
    inner = {} if method is None else method.state_dict()
    size = {} if chunks is None else {_CHUNK: torch.tensor(chunks.size)}
    return {**optimiser.state(), **size, **{_METHOD + name: tensor for name, tensor in inner.items()}}
