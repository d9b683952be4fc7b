"""
Release a table, and test it
============================

A clinic wants others to build a classifier on its table. The clinic declares public column bounds and releases the
table. A partner trains on the release alone and measures the accuracy.

The data are scikit-learn's: 569 breast tissue samples, 30 measurements each.
"""

# sphinx_gallery_thumbnail_path = "generated/gallery/small/table.png"
# %%
# What is public
# --------------
#
# Take the bounds of each column from public knowledge, never from these records. Here they are round figures. Without
# bounds, one outlier would decide how much noise all other records get.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

import privmix as pm

data = load_breast_cancer(as_frame=True)
columns = ["mean radius", "mean texture", "mean smoothness", "mean compactness", "mean concavity", "mean symmetry"]
bounds = {
    "mean radius": (5, 30),
    "mean texture": (5, 40),
    "mean smoothness": (0.05, 0.2),
    "mean compactness": (0, 0.4),
    "mean concavity": (0, 0.5),
    "mean symmetry": (0.1, 0.3),
}
table = data.frame[columns].assign(kind=np.where(data.target == 0, "malignant", "benign"))
private, test = table.iloc[:400], table.iloc[400:]

spec = pm.spec(private, label="kind", number=bounds)
print(spec)

# %%
# Release
# -------

release = pm.release(
    private,
    features=spec.extractor(),
    label="kind",
    classes=["malignant", "benign"],
    design="moments",
    epsilon=2,
    delta=1e-4,
)
print(release)

# %%
# Test
# ----
#
# Test the model on 169 records that were not in the release. Compare it with "always benign", the baseline of a model
# without training.

model = pm.fit(release)
print(pm.evaluate(model, test, label="kind"))

# %%
# Six budgets
# -----------
#
# The same for six budgets, three releases each. With private data, all these releases would add up; here the data are
# public.

epsilons = [0.25, 0.5, 1, 2, 4, 8]
reached = []
for epsilon in epsilons:
    made = [
        pm.release(
            private,
            features=spec.extractor(),
            label="kind",
            classes=["malignant", "benign"],
            design="moments",
            epsilon=epsilon,
            delta=1e-4,
        )
        for _ in range(3)
    ]
    reached.append([pm.evaluate(pm.fit(one), test, label="kind").accuracy for one in made])
reached = 100 * np.array(reached)

most = 100 * (test["kind"] == "benign").mean()
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.fill_between(epsilons, reached.min(1), reached.max(1), alpha=0.2)
axes.plot(epsilons, reached.mean(1), marker="o", label="trained on a release")
axes.axhline(most, color="black", linestyle="--", label="always benign")
axes.set(xscale="log", xticks=epsilons, xticklabels=epsilons, xlabel="epsilon", ylabel="accuracy (%)")
axes.minorticks_off()
axes.set_title("Accuracy by privacy budget: breast tissue, 400 records")
axes.legend()
plt.show()
