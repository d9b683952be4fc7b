"""
Texts and names of their classes
================================

A public network turns texts into numbers; its weights come with a package. Class names are public, too: the learner
encodes descriptions of the classes and starts from them.

The texts are first sentences from the documentation of installed Python packages.
"""

# sphinx_gallery_thumbnail_path = "generated/gallery/small/texts.png"
# %%
# Texts of four kinds
# -------------------

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
# Train on releases with and without descriptions of the classes
# --------------------------------------------------------------

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
# The gain
# --------
#
# Descriptions cost no privacy, since they contain no private text. Their gain depends on the budget and on their
# quality; with so few texts, the noise of one release can hide it.

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
