"""
Images, in one stage and in three
=================================

Second moments are sums over all records: of products of pixels, and of pixels by class. One release can compute them
in stages. The first noisy stage shows along which directions records vary; the second clips records more closely
along these; the third gives each class its own shape.

The digits are drawn from fonts, so no image is private. Their distortion was chosen so that stages help here. On other
data one stage can be better: see the page on choosing a design.
"""

# sphinx_gallery_thumbnail_path = "generated/gallery/small/images.png"
# %%
# Images without private content
# ------------------------------

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import privmix as pm

places = sorted((Path(matplotlib.get_data_path()) / "fonts" / "ttf").glob("DejaVuS*.ttf"))
fonts = [ImageFont.truetype(str(place), 30) for place in places if "Display" not in place.name]
generator = np.random.default_rng(0)


def drawn(digit):
    """Draw a digit in one of the fonts, turned, slanted and stretched; 12 x 12 grey values."""
    image = Image.new("L", (36, 36))
    font = fonts[generator.integers(len(fonts))]
    ImageDraw.Draw(image).text((18, 18), str(digit), fill=255, font=font, anchor="mm")
    turned = np.eye(2) + generator.normal(scale=0.1, size=(2, 2))
    moved = 18 - turned @ (18, 18) + generator.normal(scale=1.0, size=2)
    places = (*turned[0], moved[0], *turned[1], moved[1])
    bent = image.transform(image.size, Image.Transform.AFFINE, places, Image.Resampling.BILINEAR)
    return np.asarray(bent.resize((12, 12), Image.Resampling.BOX)).ravel() / 255


y = generator.integers(10, size=5000)
x = np.stack([drawn(digit) for digit in y])
private, test = (x[:4000], y[:4000]), (x[4000:], y[4000:])

# %%
# The same budget, spent in one stage, two and three
# --------------------------------------------------

epsilons = [1, 4]
designs = {"one stage": "moments", "two stages": "two-stage", "three stages": "three-stage"}
reached = {}
for words, design in designs.items():
    scores = []
    for epsilon in epsilons:
        release = pm.release(
            private, classes=range(10), features="identity", clip_norm=5, design=design, epsilon=epsilon, delta=1e-5
        )
        scores.append(100 * pm.fit(release).score(*test))
    reached[words] = scores
    print(words, [f"{score:.1f}" for score in scores])

# %%
# The released numbers
# --------------------
#
# A partner receives numbers. Class means are among them, with noise.

release = pm.release(
    private, classes=range(10), features="identity", clip_norm=5, design="moments", epsilon=4, delta=1e-5
)
rows, labels = release.sample(4000, seed=0)
figure, axes = plt.subplots(2, 10, figsize=(9, 2.6), layout="constrained")
for digit in range(10):
    axes[0, digit].imshow(x[np.flatnonzero(y == digit)[0]].reshape(12, 12), cmap="gray_r")
    axes[1, digit].imshow(rows[labels == digit].mean(0).reshape(12, 12), cmap="gray_r")
for one in axes.flat:
    one.set_axis_off()
figure.suptitle("A private image of each class (above), and the class's mean as released at epsilon 4")
plt.show()

# %%

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for words, scores in reached.items():
    axes.plot(epsilons, scores, marker="o", label=words)
axes.set(xscale="log", xticks=epsilons, xticklabels=epsilons, xlabel="epsilon", ylabel="accuracy (%)")
axes.minorticks_off()
axes.set_title("One budget, spent in stages: 4,000 drawn digits")
axes.legend()
plt.show()
