"""
Read a certificate
==================

A certificate states epsilon, delta, and which datasets count as neighbours. Behind these two numbers is a whole
curve: how well the best possible attacker can detect one record. This example reads a certificate, recomputes its
numbers, and draws that curve.
"""

# sphinx_gallery_thumbnail_path = "generated/gallery/small/certificate.png"
# %%

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

import privmix as pm
from privmix.accounting import tradeoff_curve

x, y = load_wine(return_X_y=True)
# Public bounds of the measurements scale each record to a length of about one.
scale = np.array([15, 6, 3.5, 30, 165, 4, 5.5, 0.7, 4, 13, 2, 4, 1700])
release = pm.release((x / scale / 2, y), classes=range(3), features="identity", design="moments", epsilon=1, delta=1e-3)

# %%
# The statements of the certificate
# ---------------------------------

certificate = release.certificate
print(f"epsilon {certificate.epsilon:.4f} at delta {certificate.delta}, adjacency {certificate.adjacency}")
for statement in certificate.statements:
    print("*", statement)

# %%
# Verification
# ------------
#
# Verification recomputes epsilon from the mechanism, checks the hash of each file, and tests the noise in the
# numbers. It also lists what no recipient can check.

found = pm.verify(release)
print(found)
for text in found.unchecked[:4]:
    print("not checked:", text)

# %%
# The curve
# ---------
#
# An attacker guesses from the release whether one record was in the data. A perfect attacker is at the lower left
# corner; a coin toss is on the dashed line. Every attacker is on or above the curve.

alpha = np.linspace(0, 1, 201)
figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
axes.plot(alpha, 1 - alpha, color="black", linestyle="--", label="a coin toss (perfect privacy)")
for epsilon in (1, 4, 8):
    plan = pm.plan(
        (x / scale / 2, y), classes=range(3), features="identity", design="moments", epsilon=epsilon, delta=1e-3
    ).plan
    axes.plot(alpha, tradeoff_curve(plan.event, alpha), label=f"epsilon {epsilon}")
axes.set(xlabel="false alarms", ylabel="missed records", aspect="equal")
axes.set_title("The best attacker, by the curve of the certificate")
axes.legend()
plt.show()
