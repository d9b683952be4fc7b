"""
A design of your own
====================

A design draws the records of a row and states the privacy cost. `docs/two_class.py` is a whole design in one file,
explained on the page "Extending privmix": rows hold records of two neighbouring classes. After an import, every
command and function accepts its name.
"""

# sphinx_gallery_thumbnail_path = "generated/gallery/small/own_design.png"
# %%
# Import and use the design
# -------------------------

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
# Verification and audit
# ----------------------
#
# Verification, learning and audits accept it, too. The audit attacks the worst pair of neighbours that the design
# defines. It can reveal a stated epsilon that is too low.

print(pm.verify(release))
audit = pm.audit(release, runs=400).audit
print(
    f"claimed {release.certificate.epsilon:.2f}, proven at least {audit.proven_epsilon:.2f}, refuted: {audit.violated}"
)

# %%
# Comparison with built-in designs at the same epsilon
# ----------------------------------------------------

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
axes.set_title("Classes mixed in a row: 1,300 digits at epsilon 4, three releases each")
plt.show()
