"""
Train privately, with DP-Mix
============================

Where one model is all that is wanted, it can be trained on the records directly, by DP-SGD: each record's gradient is
clipped, and noise is added to their sum. DP-Mix takes several views of each record, mixed with each other, into that
one gradient. Views cost no privacy.
"""

# %%
# Data: scikit-learn's digits, 1,797 images

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

import privmix as pm

x, y = load_digits(return_X_y=True)
x = (x / 16).reshape(-1, 8, 8).repeat(2, axis=1).repeat(2, axis=2)  # the network wants larger images
# Say that 300 writers have agreed to make their digits public.
public, private, test = (x[:300], y[:300]), (x[300:1500], y[300:1500]), (x[1500:], y[1500:])

# %%
# A small convolutional network, trained on shifted views of each image, on mixtures of these, and on mixtures with
# public images

views = {"augment": "crop", "k_base": 2}
ways = {
    "views of each (Self-Aug)": {"views": "self-aug", **views},
    "mixed views (DP-MIX_SELF)": {"views": "dp-mix-self", "k_self": 2, **views},
    "mixed with public digits (DP-MIX_DIFF)": {
        "views": "dp-mix-diff",
        "k_self": 2,
        "k_diff": 2,
        "pool": public,
        **views,
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
        learning_rate=2.0,
        epsilon=8,
        delta=1e-4,
    )
    reached[words] = 100 * model.score(*test)
    print(words, f"{reached[words]:.1f}")

# %%
# Each model has a certificate of its own.

print(model.certificate["guarantee"])

# %%
# So few records, and so few steps, are a test of the command and not of the method: whether views help is measured with
# many seeds in the reproduction of that paper.

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
bars = axes.barh(list(reached), list(reached.values()), height=0.5)
axes.bar_label(bars, fmt="%.1f", padding=4)
axes.invert_yaxis()
axes.set(xlabel="accuracy (%)", xlim=(0, 100))
axes.set_title("1,200 digits, epsilon 8, one run each")
plt.show()
