"""
Audit a claim that is false
===========================

A published formula gives hierarchical mixup (draw a few classes, then their records) epsilon 1 at some noise. An audit
attacks the real code many times, with and without one record. If the attack is right too often, it refutes the claim.
"""

# sphinx_gallery_thumbnail_path = "generated/gallery/small/false_claim.png"
# %%
# A design with that noise, and the claim
# ---------------------------------------

import matplotlib.pyplot as plt

import privmix as pm
from privmix.jobs.audit import Claim
from privmix.planning import ReleaseConfig

config = ReleaseConfig(
    records=50_000,
    dim=1,
    classes=tuple(map(str, range(100))),
    rows=50_000,
    design=pm.designs.Hierarchical(mixup_degree=64, expected_classes=3),
    centre="none",
)
claim = Claim.of_design(config, 1.0, 1e-5, as_published=True)
honest = config.calibrate(1.0, 1e-5)
print(f"noise of the formula {claim.plan.noise_multiplier:.2f}, noise for epsilon 1 {honest.noise_multiplier:.2f}")
priced = pm.epsilon(claim.plan.event, 1e-5).epsilon
print(f"epsilon at the formula's noise, by PLD: {priced:.2f}")

# %%
# The attack
# ----------
#
# Attack both. More runs prove a higher bound.

runs = 400
found = {"as published": pm.audit(claim, runs=runs).audit, "noise by privmix": pm.audit(honest, runs=runs).audit}
for words, audit in found.items():
    print(f"{words}: at least {audit.proven_epsilon:.2f} at 95% confidence; refuted: {audit.violated}")

# %%

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.barh(list(found), [audit.proven_epsilon for audit in found.values()], height=0.5, label="proven by the attack")
axes.plot([priced, honest.epsilon], list(found), "k|", markersize=18, markeredgewidth=3, label="upper bound (PLD)")
axes.axvline(1, color="tab:red", linestyle="--", label="claimed")
axes.set(xlabel="epsilon", xlim=(0, 8.5))
axes.invert_yaxis()
axes.set_title(f"One claim is refuted by {runs} runs, the other stands")
axes.legend(loc="center right")
plt.show()
