"""
Poisoned records
================

Somebody puts a few records into the data to make the model err. How far can that go? An attack shows what one attacker
reaches; a guarantee bounds what any attacker can, whatever they do.
"""

# %%
# An attack: a small white square in the corner of some training images, which are all of one class. Whoever adds the
# square later hopes to get that class. Models are trained without a defence, on mixtures of four images, and on images
# with patches of others.

import matplotlib.pyplot as plt
import numpy as np

from privmix import research
from privmix.accounting import poisoning_success_bound
from privmix.data import embedded_digits

train, test = (embedded_digits(split).read() for split in ("train", "test"))
found = research.attack(
    None,
    (train.x, train.y),
    kind="poisoning",
    held_out=(test.x, test.y),
    classes=10,
    attack="patch-backdoor:3,fixed",
    defences=["none", "mixup:4", "cutmix"],
    records=900,
    poisoned=60,
    trials=2,
    epochs=10,
    public_data=True,
)
for result in found.results:
    print(
        f"{result.defence}: {100 * result.share:.0f}% of images with the square, accuracy {100 * result.accuracy:.0f}%"
    )

# %%
# A guarantee: if an attack succeeds once in a thousand times without poison, then with a few poisoned records it
# succeeds at most so often. This holds for every attack, and is worth something where epsilon is small.

counts = np.arange(0, 11)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
axes[0].bar([result.defence for result in found.results], [100 * result.share for result in found.results])
axes[0].set(ylabel="images with the square that got the class (%)", title="One attack, 60 of 900 records")
for epsilon in (0.1, 0.5, 1, 2):
    bounds = [100 * poisoning_success_bound(epsilon, 1e-5, int(count), 0.001) for count in counts]
    axes[1].plot(counts, bounds, marker=".", label=f"epsilon {epsilon}")
axes[1].set(xlabel="records put in", ylabel="success of any attack, at most (%)", title="Any attack, by guarantee")
axes[1].set(yscale="log")
axes[1].legend()
plt.show()
