"""The recipe on a few thousand cells in memory; all of scanpy goes on from there.

    python pbmc.py [FILE.h5ad | FILE.h5]

Without a file, counts as of 2,700 cells of blood are made up.
"""

import sys

import anndata
import numpy as np
import scanpy as sc
from scipy import sparse

import zheng17


def made_up_counts() -> anndata.AnnData:
    """2,700 cells of 8 types x 8,000 genes: counts of which 94 in 100 are 0."""
    generator = np.random.default_rng(0)
    kinds = generator.gamma(0.05, 2.0, 8_000) * generator.lognormal(0.0, 0.7, (8, 8_000))
    depth = generator.lognormal(0.0, 0.3, (2_700, 1))
    counts = generator.poisson(kinds[generator.integers(0, 8, 2_700)] * depth)
    return anndata.AnnData(sparse.csr_matrix(counts.astype(np.float32)))


if len(sys.argv) == 1:
    adata = made_up_counts()
elif sys.argv[1].endswith(".h5"):
    adata = sc.read_10x_h5(sys.argv[1])
else:
    adata = sc.read_h5ad(sys.argv[1])
adata.var_names_make_unique()
print(f"in: {adata.n_obs} cells x {adata.n_vars} genes")

zheng17.recipe_zheng17(adata, n_comps=50)

print(f"out: {adata.n_obs} cells x {adata.n_vars} genes, components in {list(adata.obsm)}")
print("highest scores:", ", ".join(adata.var["dispersions_norm"].nlargest(5).index))
print(f"share of variance in ten components: {adata.uns['pca']['variance_ratio'][:10].sum():.2f}")
adata.write_h5ad("processed.h5ad")  # sc.pp.neighbors and what follows find obsm["X_pca"]
