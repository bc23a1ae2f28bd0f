"""Plot a series, its wavelet levels and its reconstruction: writes docs/levels.svg.

The series is a piece of the electrocardiogram that ships inside PyWavelets. Needs `pip install '.[figures]'`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np
import pywt

from wdport.uses.wavelets import WaveletTransform

LENGTH, START = 256, 300


def main(path: str = "docs/levels.svg") -> None:
    """Draw one axis per level: the coefficients as stems, the series reconstructed from them only as a line."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "wdport"  # the same file every time
    from matplotlib import pyplot

    jax.config.update("jax_enable_x64", True)
    series = pywt.data.ecg()[START : START + LENGTH, None] / 100.0
    transform = WaveletTransform(LENGTH, "db4", "symmetric", 3)
    c = np.asarray(transform.decompose(series))
    again = np.asarray(transform.reconstruct(c))[:, 0]
    rows = len(transform.level_names) + 1
    figure, axes = pyplot.subplots(rows, 1, figsize=(8, 1.3 * rows), sharex=True, layout="constrained")
    axes[0].plot(series[:, 0], color="0.7", linewidth=4, label="series")
    axes[0].plot(again, color="C0", linewidth=1, label="reconstruct(decompose(series))")
    axes[0].set_title(f"largest difference {np.abs(again - series[:, 0]).max():.0e}", loc="right", fontsize=8)
    axes[0].legend(fontsize=8, loc="upper left", frameon=False)
    for axis, name, part in zip(axes[1:], transform.level_names, transform.level_slices, strict=True):
        alone = np.zeros_like(c)
        alone[part] = c[part]
        count = part.stop - part.start
        places = (np.arange(count) + 0.5) * LENGTH / count
        axis.vlines(places, 0.0, c[part, 0], color="C1", linewidth=1, label="coefficients")
        axis.plot(np.asarray(transform.reconstruct(alone)), color="C0", linewidth=1, label="the series that they make")
        axis.set_ylabel(name)
        axis.text(0.01, 0.85, f"{count} coefficients", transform=axis.transAxes, fontsize=8)
    axes[-1].legend(fontsize=8, loc="lower left", frameon=False, ncols=2)
    axes[-1].set_xlabel("sample")
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {Path(path)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
