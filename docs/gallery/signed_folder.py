"""
From pandas to a signed folder
==============================

All steps of a data owner: a frame in memory, a budget in a ledger, a plan, a release in a folder, and a signature that
identifies the publisher to a partner.
"""

# sphinx_gallery_thumbnail_path = "generated/gallery/small/signed_folder.png"
# %%
# A frame, and a budget
# ---------------------

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine

import privmix as pm
from privmix.certificate import PrivateKey, Subject, sign_folder, verify_signature
from privmix.releases.verify import verify_release

folder = Path(tempfile.mkdtemp())
wine = load_wine(as_frame=True)
bounds = {
    "alcohol": (11, 15),
    "malic_acid": (0, 6),
    "flavanoids": (0, 5.5),
    "color_intensity": (1, 13),
    "hue": (0.4, 2),
}
frame = wine.frame[list(bounds)].assign(cultivar=[f"cultivar {number + 1}" for number in wine.target])
classes = ["cultivar 1", "cultivar 2", "cultivar 3"]
print(frame.head())

ledger = pm.Ledger.create(f"sqlite:///{folder / 'ledger.db'}")
ledger.add_dataset("wine", epsilon=3, delta=1e-2)

# %%
# A plan
# ------
#
# The plan uses public facts alone, and costs no privacy. It states what the release will cost.

spec = pm.spec(frame, label="cultivar", number=bounds)
planned = pm.plan(
    frame,
    features=spec.extractor(),
    label="cultivar",
    classes=classes,
    design=pm.designs.Classwise(full_batch=True),
    epsilon=2,
    delta=1e-3,
)
print(planned)

# %%
# A release
# ---------
#
# The ledger is charged before the first record is read. A second such release would exceed the total, and is refused.

release = pm.release(frame, planned, out=folder / "WINE", ledger=ledger, dataset="wine")
try:
    pm.release(frame, planned, out=folder / "AGAIN", ledger=ledger, dataset="wine")
except pm.BudgetExceeded as refused:
    print("refused:", refused)

# %%
# A signature
# -----------

key = PrivateKey.new()


def check(place: Path) -> Subject:
    """Sign only a verified folder."""
    return Subject.of(verify_release(place))


sign_folder(folder / "WINE", key, check)
print(sorted(path.name for path in (folder / "WINE").iterdir()))
print(verify_signature(folder / "WINE", key.public, check).files, "files signed")

# %%
# The partner
# -----------
#
# The partner loads the folder. This design releases one row for each class, the noisy mean of its records, with column
# names.

received = pm.load(folder / "WINE")
released = received.to_frame()[list(received.feature_names)]
print(released.round(3))
true = pd.DataFrame(received.transform(frame.drop(columns="cultivar")), columns=received.feature_names)
true = true.groupby(wine.target.to_numpy()).mean()

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
width = 0.25
for number, name in enumerate(classes):
    at = np.arange(len(released.columns)) + number * width
    axes.bar(at, true.iloc[number], width, color=f"C{number}", alpha=0.4)
    axes.plot(at, released.iloc[number], "o", color=f"C{number}", markeredgecolor="black", label=name)
axes.set(xticks=np.arange(len(released.columns)) + width, ylabel="mean of the class, scaled")
axes.set_xticklabels(released.columns, rotation=20)
axes.set_title("Means of the private table (bars) and of the release (points), epsilon 2")
axes.legend()
plt.show()
