"""Make scattering_reference.npz: kymatio 0.3's scattering of random images, which the tests compare with.

Run from the repository root with the ``bench`` extra installed: python tests/features/make_scattering_reference.py
"""

from pathlib import Path

import numpy as np
import scipy.special
import torch

SHAPES = [(28, 28), (32, 32), (8, 8), (21, 30)]


def main() -> None:
    # kymatio 0.3 imports a function that SciPy 1.17 took away; scattering in two dimensions does not use it.
    scipy.special.sph_harm = getattr(scipy.special, "sph_harm", None)
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    generator = np.random.default_rng(20_240_101)
    arrays = {}
    for height, width in SHAPES:
        images = generator.integers(0, 256, size=(3, height, width), dtype=np.uint8)
        scattering = ScatteringTorch2D(J=2, shape=(height, width), L=8, max_order=2)
        maps = scattering(torch.from_numpy(images).float() / 255)
        arrays[f"images_{height}x{width}"] = images
        arrays[f"maps_{height}x{width}"] = maps.numpy()
    np.savez_compressed(Path(__file__).with_name("scattering_reference.npz"), **arrays)


if __name__ == "__main__":
    main()
