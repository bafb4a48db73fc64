"""The recipe on a cluster of Dask, from a file that workers read by its path.

    python dask_cluster.py [FILE]

Here the cluster is two processes of this machine. On many machines only the line with LocalCluster is another, and FILE
must be where all of them see it. Without a file, 20,000 cells are made up.
"""

import sys

import anndata
import numpy as np
from distributed import Client, LocalCluster
from scipy import sparse

import zheng17.dask


def make_up_counts(path: str) -> None:
    """20,000 cells x 3,000 genes, in chunks of the file that workers read without their neighbours."""
    generator = np.random.default_rng(0)
    mean = generator.gamma(0.1, 2.0, 3_000)
    parts = []
    for _ in range(10):
        varied = mean * generator.gamma(1.0, 1.0, (2_000, 3_000))
        parts.append(sparse.csr_matrix(generator.poisson(varied).astype(np.float32)))
    anndata.AnnData(sparse.vstack(parts, format="csr")).write_h5ad(path)


# Workers are processes that import this file first.
if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else "counts.h5ad"
    if len(sys.argv) == 1:
        make_up_counts(path)

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        adata = zheng17.dask.read(path, chunk_rows=2_000)
        print(f"in: {adata.n_obs} cells x {adata.n_vars} genes, {adata.X.numblocks[0]} chunks")

        zheng17.recipe_zheng17(adata, n_comps=20)
        print(f"out: {adata.n_obs} cells x {adata.n_vars} genes, digest {adata.uns['zheng17']['summary_sha256'][:12]}")
        print("lazy:", adata.X)

        # A marker gene: one column, the others are not computed.
        marker = adata.var["dispersions_norm"].idxmax()
        values = adata[:, marker].X.compute()
        print(f"{marker}: {(values > values.min()).mean():.0%} of cells have it")

        # For scanpy's neighbors, which want all components in memory.
        adata.obsm["X_pca"] = adata.obsm["X_pca"].compute()
        print("components:", adata.obsm["X_pca"].shape)
