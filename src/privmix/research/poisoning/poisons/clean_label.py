"""The clean-label backdoor: images of the target class made hard to recognise, so that the trigger is learnt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from privmix.fields import Count, Number, Size
from privmix.research.poisoning.base import ATTACKS, Attack, Defence
from privmix.research.poisoning.images import Poisoned
from privmix.research.poisoning.poisons.triggers import Trigger, side_of
from privmix.research.poisoning.scene import PoisoningScene
from privmix.research.poisoning.threat import ThreatModel
from privmix.research.poisoning.toolbox import art_classifier, require_toolbox, toolbox

# The attacker's network trains for this fraction of the victim's epochs: one in three.
_SHORTER: Final = 3
_BLOCK: Final = 256


@ATTACKS.register
@dataclass(frozen=True)
class CleanLabelBackdoor(Attack):
    """A trigger on images of its own class that are adversarial to begin with (Turner et al. 2019)."""

    # The attacker trains the victim's network on the clean records, for a third of the time and with its own seed. It
    # moves images of the target class away from it by projected gradient descent. From scratch, as Turner et al.;
    # Borgnia et al. train the last layer, within 8/255, trigger included, where hardly any network learns it. Here the
    # trigger stands out. `side` 0: a quarter of the image's, as 8 of 32. Each of `steps` moves a quarter of the radius.
    radius: Annotated[float, Number(0, 255, low_open=True)] = 8.0
    side: Size = 0
    steps: Count = 20
    name: ClassVar[str] = "clean-label"
    about: ClassVar[str] = "a trigger on hard images of its own class (Turner et al. 2019); needs privmix[poisoning]"

    def threat(self, scene: PoisoningScene, records: int, *, knows_defence: bool) -> ThreatModel:
        require_toolbox()
        scene.check_held(scene.wanted, records)
        return ThreatModel(
            records,
            radius=self.radius / 255,
            patch=side_of(self.side, scene.train.shape),
            knows_defence=knows_defence,
            success="an image of the victim class, drawn before the attack and shown with the trigger, gets the target "
            "class",
        )

    def craft(self, scene: PoisoningScene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        side = side_of(self.side, scene.train.shape)
        trigger = Trigger.draw(scene, side, margin=0, purpose="clean-label")
        chosen = scene.choose(scene.wanted, threat.records, "clean-label records")
        hard = self._adversarial(scene, chosen)
        return Poisoned(scene.train.with_changed(chosen, trigger.on(hard)), chosen, trigger.goals(scene))

    def _adversarial(self, scene: PoisoningScene, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the chosen images, moved within the radius so that the attacker's network misclassifies them."""
        config = scene.victim.config
        shorter = replace(config, epochs=-(-config.epochs // _SHORTER))
        surrogate = replace(scene.victim, config=shorter).fit(scene.train, seed=scene.number_for("clean-label network"))
        radius, images = self.radius / 255, scene.train.take(chosen)
        with toolbox(scene.number_for("clean-label toolbox")):
            from art.attacks.evasion import ProjectedGradientDescentPyTorch

            descent = ProjectedGradientDescentPyTorch(
                art_classifier(surrogate, images.shape, images.classes),
                eps=radius,
                eps_step=radius / 4,
                max_iter=self.steps,
                batch_size=_BLOCK,
                verbose=False,
            )
            moved: NDArray[np.float32] = descent.generate(images.pixels, images.labels)
        return moved
