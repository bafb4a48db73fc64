"""Dispersion against mean, as scanpy draws it. The only module that knows matplotlib, which is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def plot_dispersions(result: Mapping, *, show: bool = True):
    """Draws normalised and plain dispersion of each kept gene against its mean, on logarithmic axes; selected genes are black.

    Returns the two axes.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot=True needs matplotlib: pip install matplotlib") from error

    selected = np.zeros(len(result["means"]), dtype=bool)
    selected[result["selected_among_kept"]] = True
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for axis, key, title in zip(axes, ("scores", "dispersions"), ("normalised dispersion", "dispersion"), strict=True):
        for which, label, color in ((selected, "highly variable genes", "black"), (~selected, "other genes", "grey")):
            axis.scatter(result["means"][which], result[key][which], s=1, color=color, label=label)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("mean of the normalised counts of each gene")
        axis.set_ylabel(f"{title} of each gene")
    axes[0].legend(markerscale=6)
    if show:
        plt.show()
    return axes
