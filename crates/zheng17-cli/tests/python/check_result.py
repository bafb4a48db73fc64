"""Reads what `zheng17 run` wrote as a scanpy user would, and compares it with scanpy's own recipe on the same counts.

Arguments: a folder with counts.h5ad, counts.h5, scaled.h5ad (with 10 components), lognorm.h5ad and none.h5ad, all but the
counts from `--recipe-version scanpy-1.12 --top-genes 200`, and genes.tsv.
"""

import sys
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")
import pandas as pd
import scanpy as sc

folder = Path(sys.argv[1])


def close(found, expected, what):
    found, expected = np.asarray(found, "f8"), np.asarray(expected, "f8")
    difference = np.abs(found - expected) / (1 + np.abs(expected))
    assert difference.max() <= 1e-5, f"{what}: {difference.max()}"


counts = sc.read_h5ad(folder / "counts.h5ad")
tenx = sc.read_10x_h5(folder / "counts.h5")
assert (counts.X != tenx.X).nnz == 0 and list(counts.obs_names) == list(tenx.obs_names)
assert list(counts.var_names) == list(tenx.var_names)

counts.X = counts.X.astype("f4")
ours = sc.read_h5ad(folder / "scaled.h5ad")
theirs = sc.pp.recipe_zheng17(counts, n_top_genes=200, copy=True)
assert list(ours.var_names) == list(theirs.var_names)
close(ours.X, theirs.X, "X")
close(ours.obs["n_counts_all"], theirs.obs["n_counts_all"], "n_counts_all")
close(ours.var["n_counts"], theirs.var["n_counts"], "n_counts")
close(ours.var["mean"], theirs.var["mean"], "mean")
close(ours.var["std"], theirs.var["std"], "std")
assert list(ours.obs["cell_type"]) == list(counts.obs["cell_type"])
assert list(ours.var["marker_of"].astype(str)) == list(counts.var.loc[ours.var_names, "marker_of"].astype(str))
assert ours.uns["zheng17"]["version"] == "scanpy-1.12"

sc.pp.pca(theirs, n_comps=10, svd_solver="full")
close(ours.uns["pca"]["variance"], theirs.uns["pca"]["variance"], "pca variance")
close(ours.uns["pca"]["variance_ratio"], theirs.uns["pca"]["variance_ratio"], "pca variance ratio")
close(np.abs(np.asarray(ours.X, "f8") @ ours.varm["PCs"]), np.abs(ours.obsm["X_pca"]), "scores")
loadings = np.abs((ours.varm["PCs"] * theirs.varm["PCs"]).sum(0))
close(loadings[:3], np.ones(3), "leading loadings")
# What people do next.
sc.pp.neighbors(ours)
sc.tl.rank_genes_groups(ours, "cell_type", n_genes=3)

lognorm = sc.read_h5ad(folder / "lognorm.h5ad")
# scanpy fails on two different index types.
for sparse in (lognorm.X, counts.X):
    assert sparse.indptr.dtype == sparse.indices.dtype == np.int32
sc.tl.rank_genes_groups(sc.AnnData(lognorm.X, obs=ours.obs), "cell_type", n_genes=3)
sc.pp.scale(lognorm.copy())
scaled = (lognorm.X.toarray().astype("f8") - lognorm.var["mean"].values) / lognorm.var["std"].values
close(scaled, ours.X, "scaled from lognorm")
nothing = sc.read_h5ad(folder / "none.h5ad")
assert nothing.X is None and nothing.obsm["X_pca"].shape == (counts.n_obs, 10)
close(nothing.obsm["X_pca"], ours.obsm["X_pca"], "the same scores")

genes = pd.read_csv(folder / "genes.tsv", sep="\t", keep_default_na=False, na_values=[""])
assert list(genes["name"]) == list(counts.var_names)
assert list(genes.loc[genes["selected"], "name"]) == list(ours.var_names)
close(genes["total"], np.asarray(counts.X.sum(0)).ravel(), "totals")
close(genes.loc[genes["selected"], "score"], ours.var["dispersions_norm"], "scores")
close(genes.loc[genes["selected"], "mean"], ours.var["means"], "means")
