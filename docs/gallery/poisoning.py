"""
Poisoned records
================

Somebody puts a few records into the data to make the model err. How far can that go? This example poisons digits with a
square in the corner and a wrong label, and looks at what a model without privacy and models learnt from releases make
of it. A guarantee bounds what any poisoner can do, whatever they try.
"""

# %%
# The attack
# ----------
#
# Some images of digits get a white square, and the label 0. Whoever adds the square to another image later hopes that
# it is taken for a 0.

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
    """The training data, and so many records of a poisoner."""
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
# One attack that fails says little: another may do better. The bound holds for all of them: what succeeds once in a
# thousand times without poison succeeds at most so often with it. It is worth something where epsilon is small and the
# poisoned records are few.

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
