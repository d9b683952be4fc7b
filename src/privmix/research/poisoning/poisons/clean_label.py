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
from privmix.research.poisoning.scene import Scene
from privmix.research.poisoning.threat import ThreatModel
from privmix.research.poisoning.toolbox import art_classifier, require_toolbox, toolbox

# The attacker's network trains for one epoch in so many of the victim's.
_SHORTER: Final = 3
_BLOCK: Final = 256


@ATTACKS.register
@dataclass(frozen=True)
class CleanLabelBackdoor(Attack):
    """A trigger on images of its own class that are adversarial to begin with (Turner et al. 2019).

    The attacker trains the victim's network on the clean records, for a third of the time and with a seed of its own,
    moves images of the target class away from their class by projected gradient descent (that of the adversarial
    robustness toolbox), and puts the trigger into their lower right corner. Turner et al. train from scratch, as here;
    Borgnia et al. follow the benchmark of Schwarzschild et al. (2021), which trains the last layer, allows 8/255 and
    squeezes the trigger into the same box, where hardly any network learns it. Here the trigger stands out.

    Attributes:
        radius: most that a pixel moves outside the trigger, in 255ths.
        side: of the trigger in pixels; 0: a quarter of the image's, as 8 of 32.
        steps: of the descent, each of a quarter of the radius, as 2/255 of 8/255.
    """

    radius: Annotated[float, Number(0, 255, low_open=True)] = 8.0
    side: Size = 0
    steps: Count = 20
    name: ClassVar[str] = "clean-label"
    about: ClassVar[str] = "a trigger on hard images of its own class (Turner et al. 2019); needs privmix[poisoning]"

    def threat(self, scene: Scene, records: int, *, knows_defence: bool) -> ThreatModel:
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

    def craft(self, scene: Scene, threat: ThreatModel, defence: Defence | None) -> Poisoned:
        side = side_of(self.side, scene.train.shape)
        trigger = Trigger.draw(scene, side, margin=0, purpose="clean-label")
        chosen = scene.choose(scene.wanted, threat.records, "clean-label records")
        hard = self._adversarial(scene, chosen)
        return Poisoned(scene.train.with_changed(chosen, trigger.on(hard)), chosen, trigger.goals(scene))

    def _adversarial(self, scene: Scene, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
        """The chosen images, moved within the radius so that the attacker's network takes them for other classes."""
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
