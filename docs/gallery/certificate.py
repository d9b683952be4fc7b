"""
Read a certificate
==================

A certificate states what was guaranteed: epsilon, delta, and what neighbouring datasets are. Behind these two numbers
is a whole curve: how well the best possible attacker can tell whether one record was there. This example reads a
certificate, computes its numbers again, and draws that curve.
"""

# %%

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import privmix as pm
from privmix.accounting import tradeoff_curve

x, y = load_wine(return_X_y=True)
# Public bounds of the measurements, by which they are scaled to lengths of about one.
scale = np.array([15, 6, 3.5, 30, 165, 4, 5.5, 0.7, 4, 13, 2, 4, 1700])
release = pm.release((x / scale / 2, y), classes=range(3), features="identity", design="moments", epsilon=1, delta=1e-3)

# %%
# What it says

certificate = release.certificate
print(f"epsilon {certificate.epsilon:.4f} at delta {certificate.delta}, adjacency {certificate.adjacency}")
for statement in certificate.statements:
    print("*", statement)

# %%
# Is it so? Verification computes epsilon again from what ran, checks the hash of each file, and tests the numbers for
# their noise. It also says what nobody can check from outside.

found = pm.verify(release)
print(found)
for text in found.unchecked[:4]:
    print("not checked:", text)

# %%
# The curve
# ---------
#
# An attacker looks at the release and says whether one record was in the data. Who never errs lies at the lower left
# corner; who tosses a coin, on the dashed line. No attacker at all is below a curve.

alpha = np.linspace(0, 1, 201)
figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
axes.plot(alpha, 1 - alpha, color="black", linestyle="--", label="a coin (perfect privacy)")
for epsilon in (1, 4, 8):
    plan = pm.plan(
        (x / scale / 2, y), classes=range(3), features="identity", design="moments", epsilon=epsilon, delta=1e-3
    ).plan
    axes.plot(alpha, tradeoff_curve(plan.event, alpha), label=f"epsilon {epsilon}")
axes.set(xlabel="false alarms", ylabel="records that are missed", aspect="equal")
axes.set_title("What the best attacker can do, by what the certificate states")
axes.legend()
plt.show()
