"""What the tests share: where real files and right answers are, if they are there, and counts of our own making."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

ROOT = Path(__file__).parents[3]


def shared_folder() -> Path | None:
    """The folder of real files, or nothing."""
    folder = Path(os.environ.get("ZHENG17_SHARED", ROOT.parent / "shared"))
    return folder if (folder / "data").is_dir() else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real files; a test that wants it is skipped where it is not."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("needs the folder shared/ beside the repository, or ZHENG17_SHARED")
    return folder


@pytest.fixture(scope="session")
def counts() -> sparse.csr_matrix:
    """Counts of 600 cells x 1,200 genes, of which some vary more than others; int32 indices, float32 values."""
    generator = np.random.default_rng(17)
    mean = generator.gamma(0.4, 1.5, 1200)
    factor = generator.lognormal(0.0, 0.3, (600, 1))
    variable = np.where(generator.random(1200) < 0.2, generator.gamma(2.0, 1.0, (600, 1200)) / 2.0, 1.0)
    return sparse.csr_matrix(generator.poisson(mean * factor * variable).astype(np.float32))
