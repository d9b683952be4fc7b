"""
Train privately, with DP-Mix
============================

DP-SGD trains one model on the records directly: it clips each record's gradient and adds noise to the sum. DP-Mix
computes this gradient from several views of each record, mixed with each other. Views cost no privacy.
"""

# sphinx_gallery_thumbnail_path = "generated/gallery/small/training.png"
# %%
# Data
# ----
#
# Data: scikit-learn's digits, 1,797 images

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import privmix as pm

x, y = load_digits(return_X_y=True)
x = (x / 16).reshape(-1, 8, 8).repeat(2, axis=1).repeat(2, axis=2)  # the network wants larger images
# Suppose that 300 writers agreed to make their digits public.
public, private, test = (x[:300], y[:300]), (x[300:1500], y[300:1500]), (x[1500:], y[1500:])

# %%
# A network and three methods
# ---------------------------
#
# A small convolutional network, trained on shifted views of each image, on mixtures of these, and on mixtures with
# public images

ways = {
    "views of each (Self-Aug)": {"views": "self-aug:augmentations=crop,k_base=2"},
    "mixed views (DP-MIX_SELF)": {"views": "dp-mix-self:augmentations=crop,k_base=2,k_self=2"},
    "mixed with public digits (DP-MIX_DIFF)": {
        "views": "dp-mix-diff:augmentations=crop,k_base=2,k_self=2,k_diff=2",
        "pool": public,
    },
}
reached = {}
for words, way in ways.items():
    model = pm.train(
        private,
        classes=range(10),
        features="pixels",
        model="cnn",
        **way,
        epochs=6,
        batch_size=256,
        optimiser="sgd:learning_rate=2",
        epsilon=8,
        delta=1e-4,
    )
    reached[words] = 100 * model.score(*test)
    print(words, f"{reached[words]:.1f}")

# %%
# Certificates
# ------------
#
# Each model has its own certificate.

print(model.certificate["guarantee"])

# %%
# Accuracy by method
# ------------------
#
# So few records and steps do not rank the methods. The reproduction of the DP-Mix paper compares them with many seeds.

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
bars = axes.barh(list(reached), list(reached.values()), height=0.5)
axes.bar_label(bars, fmt="%.1f", padding=4)
axes.invert_yaxis()
axes.set(xlabel="accuracy (%)", xlim=(0, 100))
axes.set_title("1,200 digits, epsilon 8, one run each")
plt.show()
