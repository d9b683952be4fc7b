"""A whole training job: from settings and public facts to a trained model with its certificate."""

import copy
import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from privmix.certificate.notes import ReservationNote, mode_of
from privmix.devices import chosen_device
from privmix.errors import WITHHELD, InvalidInput
from privmix.folders import no_core_dumps
from privmix.mechanisms.plan import check_price
from privmix.mechanisms.streams import SecretStreams
from privmix.progress import Progress, silent
from privmix.training.certificate import training_certificate
from privmix.training.config import TrainingConfig
from privmix.training.dp_sgd import StepObserver, TrainingRecords
from privmix.training.examples import ModelFacts, PublicData
from privmix.training.gradients.parameters import FlatParameters
from privmix.training.mechanisms.base import plan_types
from privmix.training.models.base import Classifier, build_model
from privmix.training.models.layers_check import check_independence, check_model
from privmix.training.models.own import OwnNetwork
from privmix.training.noise import check_processes
from privmix.training.plan import TrainingPlan
from privmix.training.public_phase import PublicPhase
from privmix.training.run import PrivatePhase, TrainingRun, Watch, pack_state, unpack_state
from privmix.training.trained import TrainedModel, load_trained, shaped, weights_digest
from privmix.training.views.pipeline import ViewPipeline
from privmix.world import World


class Trainer:
    """Settings, public facts and public data, checked together before a private record is read.

    Formal guarantees:
        * Public until :meth:`run`: everything before it is made of settings and public data.
        * Refused early: a model that mixes records, a pool of other classes, data that don't fit and targets that
          can't be met are errors before budget is charged.
        * No loss: neither private loss nor accuracy is computed, and progress shows public figures only.
        * Public without steps: a plan for epsilon 0 takes no records, and its model is made of public data alone.
        * Same bits: on the CPU, with as many threads, a run that was killed anywhere and resumed ends with the weights
          of one that was not.
        * No trace: torch's and NumPy's global generators are neither read nor moved.
    """

    # pool: public examples for mixing. network: replaces ``config.model``. records_declared: ``records`` is declared or
    # a private estimate. records_noise_multiplier: of the query that estimated it.

    def __init__(
        self,
        config: TrainingConfig,
        facts: ModelFacts,
        records: int,
        *,
        public: PublicData | None = None,
        synthetic: PublicData | None = None,
        pool: PublicData | None = None,
        network: Classifier | None = None,
        records_declared: bool = False,
        records_noise_multiplier: float | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.config: Final = config
        self.facts: Final = facts
        self._given = {"public": public, "synthetic": synthetic, "pool": pool}
        self.plan: TrainingPlan = config.plan(
            records, records_declared=records_declared, records_noise_multiplier=records_noise_multiplier
        )
        classes = len(facts.classes)
        self.network: Final = network or build_model(
            config.model,
            input_shape=facts.input_shape,
            dim=facts.dim,
            classes=classes,
            seed=config.model_seed,
            norm=config.feature_norm,
        )
        if not self.network.certifiable:
            raise InvalidInput("network", WITHHELD, "weights of no run without a certificate")
        if self.network.classes != classes:
            raise InvalidInput("model classes", self.network.classes, f"{classes}, the declared classes")
        layout = facts.layout if self.network.takes_images else None
        self._input = tuple(shaped(torch.zeros(1, facts.dim), self.network, facts).shape[1:])
        check_model(self.network)
        check_independence(self.network, self._input)
        self.views: Final = ViewPipeline(config.views, layout, classes=classes, pool=pool)
        self.device: Final = chosen_device(device)
        self.network.to(self.device)
        self._flat = FlatParameters(self.network)
        self._initial = self._flat.get()
        self._public = PublicPhase(config, facts, self.network, self.views, public, synthetic)
        self._private = PrivatePhase(config, self.plan, self.network, self._input, self.views, self._public)

    @property
    def weights(self) -> int:
        """How many numbers are trained."""
        return self._flat.size

    def settings(self) -> dict[str, Any]:
        """JSON values of all that decides the result but the private records."""
        return {
            **self.config.settings(),
            "records": self.plan.records,
            "records_declared": self.plan.records_declared,
            # Calibrated by packages that a resumed run may find in other versions: what ran is what is stated.
            "plan": self.plan.to_dict(),
            "network": self.network.spec(),
            "extractor": dict(self.facts.extractor),
            "classes": list(self.facts.classes),
            "input_shape": list(self.facts.input_shape),
            "dim": self.facts.dim,
            "public_data": self.public_digests(),
            "device": self.device.type,
        }

    def public_digests(self) -> dict[str, str]:
        return {name: data.fingerprint() for name, data in self._given.items() if data is not None}

    def check(self, records: TrainingRecords) -> None:
        """Raise :class:`InvalidInput` unless the records fit the facts and the plan; ``run`` checks it too."""
        if records.dim != self.facts.dim or records.classes != len(self.facts.classes):
            found = (records.dim, records.classes)
            raise InvalidInput("records", found, f"{self.facts.dim} features and {len(self.facts.classes)} classes")
        self.views.check_records(records.x.shape[1:])
        if self.views.layout is not None and not records.in_unit_range():
            # Rounding, which the bound on a record's share has a margin for, grows with the values.
            raise InvalidInput("images", WITHHELD, "values from 0 to 1")
        if self.config.microbatch_mixes and records.x.ndim == 3:
            raise InvalidInput("microbatch_mixes", self.config.microbatch_mixes, "0 with a bank of views")
        self.plan.sampler_for(len(records))

    def check_world(self, world: World) -> None:
        """Raise :class:`InvalidInput` unless these processes can do the job; ``run`` checks it too."""
        check_processes(self.plan, world.size)
        if world.size > 1 and self.plan.steps == 0:
            raise InvalidInput("epsilon", 0, "more than 0 with several processes")

    def run(
        self,
        records: TrainingRecords | None,
        *,
        run: TrainingRun | None = None,
        streams: SecretStreams | None = None,
        reservation: ReservationNote | None = None,
        progress: Progress | None = None,
        world: World | None = None,
        watch: Watch | None = None,
    ) -> TrainedModel:
        """Warm up, train privately, and return the model; with ``run``, also keep checkpoints and publish it."""
        # ``records`` is None for a plan without steps, and for a complete run whose model is published without them.
        # ``run`` exists on rank 0 only, resumed where it stopped. ``streams`` replaces it; None takes a fresh key.
        no_core_dumps()
        if run is not None and run.complete:
            run.publish()
            return load_trained(run.out, self.network.module if isinstance(self.network, OwnNetwork) else None)
        if (records is None) is (self.plan.steps > 0):
            allowed = "the private records: the run is not complete" if records is None else "none for epsilon 0"
            raise InvalidInput("records", None if records is None else WITHHELD, allowed)
        world = world or World()
        check_price(self.plan, plan_types())
        mode_of(reservation, self.plan, name=None if run is None else run.id)
        self.check_world(world)
        if records is not None:
            self.check(records)
        own = streams if run is None else run.streams
        if own is None and world.is_head:
            own = SecretStreams.from_entropy()
        try:
            if own is not None:
                own.claim()
            if run is not None and records is not None:
                run.bind(records.digest(run.fingerprint_key))
            # A seed is as good as a key where nothing is hidden.
            insecure = own is not None and own.insecure_seed and records is not None
            known = None if own is None else {"insecure": insecure, "id": None if run is None else run.id}
            if records is not None:
                self._check_same_records(records, world)
            told = json.loads(world.share(json.dumps(known).encode()))
            tell = progress or silent
            kept = self._kept()
            self._flat.set(self._train(records, run, own, world, tell, (), watch))
            # A forward pass must keep nothing of records: that would have no noise, and is not published.
            state = self.network.state_dict()
            for name, before in kept.items():
                if not torch.equal(before, state[name].to(before.device)):
                    allowed = f"a module that keeps nothing of its inputs: {name} changed while it was trained"
                    raise InvalidInput("model", type(self.network).__name__, allowed)
            self._public.warn_if_lost()
            model = self._finished(told["insecure"], reservation, told["id"])
            if run is not None:
                run.publish(model.write)
            return model
        finally:
            # A run's own streams end with the run.
            if own is not None and run is None:
                own.destroy()

    def _kept(self) -> dict[str, torch.Tensor]:
        """Return copies of the content of a user's own network other than the weights that are trained."""
        if not isinstance(self.network, OwnNetwork):
            return {}
        trained = {id(weight) for weight in self.network.parameters() if weight.requires_grad}
        state = self.network.state_dict(keep_vars=True)
        return {name: tensor.detach().clone() for name, tensor in state.items() if id(tensor) not in trained}

    def observed(
        self,
        records: TrainingRecords,
        observers: Sequence[StepObserver],
        *,
        streams: SecretStreams | None = None,
        progress: Progress | None = None,
    ) -> Classifier:
        """Train as :meth:`run` under observers, for the owner's eyes; the copy of the network has no certificate."""
        no_core_dumps()
        check_price(self.plan, plan_types())
        self.check(records)
        own = streams or SecretStreams.from_entropy()
        try:
            own.claim()
            tell = progress or silent
            self._flat.set(self._train(records, None, own, World(), tell, observers))
            found = copy.deepcopy(self.network)
            found.certifiable = False
            return found
        finally:
            # No trace of it stays in a network that another job could start from.
            self._flat.set(self._initial)
            own.destroy()

    @staticmethod
    def _check_same_records(records: TrainingRecords, world: World) -> None:
        """Shards of two orders, or of other numbers, could hold a unit twice: it would be clipped twice."""
        if world.size == 1:
            return
        key = world.share(os.urandom(32) if world.is_head else b"")
        # Not the features: machines may differ in their last digits.
        whose = b"".join(part.tobytes() for part in records.units or ())
        known = repr((records.x.shape, len(whose))).encode() + whose + records.labels.tobytes()
        own = hashlib.blake2b(known, key=key).digest()
        if not hmac.compare_digest(own, world.share(own)):
            raise InvalidInput("data", WITHHELD, "the same records in the same order for every process")

    def _train(
        self,
        records: TrainingRecords | None,
        run: TrainingRun | None,
        streams: SecretStreams | None,
        world: World,
        progress: Progress,
        observers: Sequence[StepObserver],
        watch: Watch | None = None,
    ) -> Tensor:
        """Both phases, from the last checkpoint on; returns the weights to evaluate."""
        start, state = (0, {}) if run is None else run.load()
        if world.size > 1:
            start, state = unpack_state(world.share(pack_state(start, state)))
        # An earlier run of this job may have left weights in the network.
        self._flat.set(self._initial)
        if not state:
            self._public.warm_up(progress)
            if not self._private.answers():
                rate = self.config.warm_up.learning_rate
                raise InvalidInput("warm_up learning_rate", rate, "a smaller one: outputs are no finite numbers")
            self._flat.set(world.from_head(self._flat.get()))
        if records is None:
            return self._flat.get()
        return self._private.run(
            records,
            start=start,
            state=state,
            run=run,
            streams=streams,
            world=world,
            progress=progress,
            observers=observers,
            watch=watch,
        )

    def _finished(self, insecure: bool, reservation: ReservationNote | None, model_id: str | None) -> TrainedModel:
        # Settings that the certificate has at other places are left out.
        settings = {name: value for name, value in self.settings().items() if name not in ("plan", "public_data")}
        certificate = training_certificate(
            self.plan,
            model_id=model_id or weights_digest(self.network)[:32],
            settings=settings,
            weights_sha256=weights_digest(self.network),
            insecure_seed=insecure,
            reservation=reservation,
            public_data=self.public_digests(),
        )
        # A copy: another run of this job would change the network.
        return TrainedModel(copy.deepcopy(self.network), self.facts, certificate)
