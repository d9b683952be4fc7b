"""
Release a table, and judge it
=============================

A clinic wants others to build a classifier on its table. It says what the columns may hold, which is public, and
releases the table. A partner learns from the release alone, and asks: is that any good?

The data are scikit-learn's: 569 breast tissue samples, 30 measurements each.
"""

# %%
# What is public
# --------------
#
# The bounds of each column come from what is known of such measurements, never from these records. Here we take round
# figures a reader of the field could have named. Without bounds one outlier would decide how much noise all others get.

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
# Judge
# -----
#
# The model that is learnt from the release is tested on 169 records that were not in it. "Always benign" is what a
# model that has learnt nothing reaches: accuracy alone would flatter it.

model = pm.fit(release)
print(pm.evaluate(model, test, label="kind"))

# %%
# The same for five budgets, three releases each. Every release of these records would add to their price: here the
# data are public, and we only look at what a budget buys.

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
axes.plot(epsilons, reached.mean(1), marker="o", label="learnt from a release")
axes.axhline(most, color="black", linestyle="--", label="always benign")
axes.set(xscale="log", xticks=epsilons, xticklabels=epsilons, xlabel="epsilon", ylabel="accuracy (%)")
axes.minorticks_off()
axes.set_title("What a budget buys: breast tissue, 400 records")
axes.legend()
plt.show()
