"""
A design of your own
====================

A design says who is in a row, and what that costs: one object does both, so that neither can be had without the other.
`docs/two_class.py` is a whole design in one file, of which a page of the documentation explains each part: rows hold
records of two neighbouring classes. Once it is imported, every command and function knows it by its name.
"""

# %%
# Import it, and it is there

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import privmix as pm

sys.path.append(str(Path(pm.__file__).parents[2] / "docs"))
import two_class

x, y = load_digits(return_X_y=True)
private, test = (x[:1300] / 16, y[:1300]), (x[1300:] / 16, y[1300:])
design = two_class.TwoClass(mixup_degree=16)
release = pm.release(private, classes=range(10), features="pixels", design=design, epsilon=4, delta=1e-4)
print(release)

# %%
# Verification, learning and audits know it as well. The audit attacks the worst pair of neighbours that the design's
# file names: were its price too low, this is where it would show.

print(pm.verify(release))
audit = pm.audit(release, runs=400).audit
print(
    f"claimed {release.certificate.epsilon:.2f}, proven at least {audit.proven_epsilon:.2f}, refuted: {audit.violated}"
)

# %%
# Beside the designs that privmix brings, at the same price

designs = {"two classes a row": design, "all classes": pm.designs.Poisson(16), "one class": pm.designs.Classwise(16)}
scores = {}
for words, one in designs.items():
    made = [
        pm.release(private, classes=range(10), features="pixels", design=one, epsilon=4, delta=1e-4) for _ in range(3)
    ]
    scores[words] = [100 * pm.fit(each).score(*test) for each in made]

figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
for place, reached in enumerate(scores.values()):
    axes.bar(place, np.mean(reached), color="tab:blue" if place == 0 else "lightgrey")
    axes.plot([place] * len(reached), reached, "k.")
axes.set(xticks=range(len(scores)), xticklabels=list(scores), ylabel="accuracy (%)", ylim=(40, 100))
axes.set_title("Whom a row mixes: 1,300 digits at epsilon 4, three releases each")
plt.show()
