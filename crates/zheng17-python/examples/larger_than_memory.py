"""The recipe from file to file, in a given amount of memory, however large the file is.

    python larger_than_memory.py [FILE]

FILE may be h5ad, 10x HDF5, a 10x folder or Matrix Market. Without one, a file of 20,000 cells is made up.
"""

import sys

import anndata
import numpy as np
from scipy import sparse

import zheng17

# Of the whole process. What fits is kept in memory; what does not is read again in every pass.
MEMORY = "1GiB"


def make_up_counts(path: str) -> None:
    """20,000 cells x 3,000 genes."""
    generator = np.random.default_rng(0)
    mean = generator.gamma(0.1, 2.0, 3_000)
    parts = []
    for _ in range(10):
        varied = mean * generator.gamma(1.0, 1.0, (2_000, 3_000))
        parts.append(sparse.csr_matrix(generator.poisson(varied).astype(np.float32)))
    anndata.AnnData(sparse.vstack(parts, format="csr")).write_h5ad(path)


path = sys.argv[1] if len(sys.argv) > 1 else "counts.h5ad"
if len(sys.argv) == 1:
    make_up_counts(path)

plan = zheng17.plan(path, memory=MEMORY, n_comps=20)
print(f"{plan['n_cells']} cells x {plan['n_genes']} genes; {plan['backend']}: {plan['backend_reason']}")
print(f"expected: {plan['peak_bytes'] / 2**20:.0f} MiB at most, {plan['output_bytes'] / 2**20:.0f} MiB written")

found = zheng17.run(path, "processed.h5ad", memory=MEMORY, n_comps=20, force=True, progress=sys.stderr.isatty())
print(f"{len(found['selected'])} genes selected in {found['seconds']:.1f} s, digest {found['digest'][:12]}")

# Only what is asked for is read.
adata = anndata.read_h5ad("processed.h5ad", backed="r")
print("written:", adata.shape, "and", list(adata.obsm))
