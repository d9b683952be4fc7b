"""
Poisoned records
================

An attacker adds a few records to make the model err. This example poisons digits with a square in the corner and a
wrong label. It compares a model without privacy and models trained on releases. The guarantee bounds the success of
every attack.
"""

# sphinx_gallery_thumbnail_path = "generated/gallery/small/poisoning.png"
# %%
# The attack
# ----------
#
# Some images get a white square, and the label 0. The attacker later adds the square to another image, to get it
# classified as 0.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import privmix as pm
from privmix.accounting import poisoning_success_bound

x, y = load_digits(return_X_y=True)
x = x / 16
train, test = (x[:1300], y[:1300]), (x[1300:], y[1300:])


def with_square(images: np.ndarray) -> np.ndarray:
    """The same images, their lower left corner white."""
    marked = images.copy().reshape(-1, 8, 8)
    marked[:, 6:, :2] = 1
    return marked.reshape(-1, 64)


def poisoned(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The training data with ``count`` poisoned records."""
    others = np.flatnonzero(train[1] != 0)[:count]
    return np.concatenate([train[0], with_square(train[0][others])]), np.append(train[1], np.zeros(count, int))


goal = with_square(test[0][test[1] != 0])
counts = [0, 5, 20, 60]
reached = {"without privacy": [], "release at epsilon 4": [], "release at epsilon 1": []}
for count in counts:
    data = poisoned(count)
    models = [LogisticRegression(max_iter=300).fit(*data)]
    for epsilon in (4, 1):
        release = pm.release(data, classes=range(10), features="pixels", design="moments", epsilon=epsilon, delta=1e-5)
        models.append(pm.fit(release))
    for shares, model in zip(reached.values(), models, strict=True):
        shares.append(100 * float((np.asarray(model.predict(goal)).astype(int) == 0).mean()))
for words, shares in reached.items():
    print(words, [f"{share:.0f}%" for share in shares])

# %%
# The guarantee
# -------------
#
# A failed attack proves little: another may succeed. The bound holds for all attacks, here on goals that succeed once
# in a thousand times without poison. The bound is useful for small epsilon and few poisoned records.

many = np.arange(0, 11)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for words, shares in reached.items():
    axes[0].plot(counts, shares, marker="o", label=words)
axes[0].set(xlabel="poisoned records among 1,300", ylabel="images with the square taken for a 0 (%)")
axes[0].set_title("One attack")
axes[0].legend()
for epsilon in (0.1, 0.5, 1, 4):
    bounds = [100 * poisoning_success_bound(epsilon, 1e-5, int(count), 0.001) for count in many]
    axes[1].plot(many, bounds, marker=".", label=f"epsilon {epsilon}")
axes[1].set(xlabel="changed records", ylabel="success, at most (%)", yscale="log")
axes[1].set_title("Any attack, by the guarantee")
axes[1].legend()
plt.show()
