"""
Texts, and what their classes are called
========================================

Texts become numbers by a public network (it comes with a package; nothing is downloaded). What the classes are called
is public, too: the learner puts descriptions of the classes where texts go, and starts from there.

The texts are first sentences of the documentation of Python packages that are installed here.
"""

# %%
# Texts of four kinds

import inspect
import tempfile
from importlib import import_module
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import privmix as pm

modules = {
    "statistics": ["scipy.stats", "scipy.stats.mstats", "sklearn.metrics", "sklearn.mixture"],
    "images": ["scipy.ndimage", "PIL.Image", "PIL.ImageOps", "PIL.ImageFilter", "PIL.ImageDraw"],
    "linear algebra": ["scipy.linalg", "numpy.linalg", "scipy.sparse.linalg"],
    "signals": ["scipy.signal", "scipy.fft", "scipy.signal.windows"],
}


def sentences(names: list[str]) -> list[str]:
    """The first sentence of each documented name."""
    found = set()
    for name in names:
        for _, thing in inspect.getmembers(import_module(name)):
            text = " ".join((inspect.getdoc(thing) or "").split())
            if len(text) > 40 and callable(thing):
                found.add(text.split(". ")[0][:120])
    return sorted(found)[::2][:40]


random = np.random.default_rng(0)
texts = [(text, number) for number, names in enumerate(modules.values()) for text in sentences(names)]
random.shuffle(texts)
x, y = [text for text, _ in texts], [int(label) for _, label in texts]
split = 2 * len(x) // 3
print(len(x), "sentences, such as:", x[0])

# %%
# Releases at small budgets, learnt from with descriptions of the classes and without

told = {
    "statistics": "probability distributions, random variables and tests",
    "images": "pixels, filters and colours of pictures",
    "linear algebra": "matrices, decompositions, eigenvalues and solvers",
    "signals": "filters, spectra, windows and Fourier transforms",
}
epsilons = [1, 8]
plain, described = [], []
store = tempfile.mkdtemp()  # features are computed once; the folder is as private as the texts
for epsilon in epsilons:
    release = pm.release(
        (x[:split], y[:split]),
        classes=list(modules),
        features="minilm",
        design="moments",
        epsilon=epsilon,
        delta=1e-4,
        store=Path(store) / "features",
    )
    plain.append(100 * pm.fit(release).score(x[split:], y[split:]))
    described.append(100 * pm.fit(release, class_descriptions=told).score(x[split:], y[split:]))
print("with descriptions", [f"{score:.1f}" for score in described], "without", [f"{score:.1f}" for score in plain])

# %%
# Descriptions cost nothing, since no private text is in them. What they add depends on the budget and on how telling
# they are; with so few texts it is lost in the noise of a single release now and then.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(epsilons, described, marker="o", label="with descriptions of the classes")
axes.plot(epsilons, plain, marker="s", label="without")
axes.axhline(
    100 * np.bincount(y[split:]).max() / len(y[split:]), color="black", linestyle="--", label="always the same"
)
axes.set(xscale="log", xticks=epsilons, xticklabels=epsilons, xlabel="epsilon", ylabel="accuracy (%)")
axes.minorticks_off()
axes.set_title(f"{split} sentences of four kinds")
axes.legend()
plt.show()
