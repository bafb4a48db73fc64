"""The package as a whole: what is imported with it, and one answer by every way to it."""

from __future__ import annotations

import subprocess
import sys

import anndata
import numpy as np
import pytest

import zheng17


def test_importing_it_imports_nothing_that_is_optional():
    script = "import sys, zheng17; print(sorted({'dask', 'matplotlib', 'scanpy', 'tqdm'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


@pytest.mark.scanpy
def test_scanpy_reads_the_same_from_file_and_memory(counts, tmp_path):
    import scanpy as sc

    adata = anndata.AnnData(counts)
    adata.write_h5ad(tmp_path / "counts.h5ad")
    found = zheng17.run(tmp_path / "counts.h5ad", tmp_path / "result.h5ad", n_top_genes=100, n_comps=10)
    zheng17.recipe_zheng17(adata, n_top_genes=100, n_comps=10)
    assert found["digest"] == adata.uns["zheng17"]["summary_sha256"]
    file = sc.read_h5ad(tmp_path / "result.h5ad")
    assert list(file.var_names) == list(adata.var_names) == found["selected_names"]
    np.testing.assert_array_equal(file.X, adata.X)
    np.testing.assert_array_equal(file.obsm["X_pca"], adata.obsm["X_pca"])


@pytest.mark.scanpy
def test_one_import_takes_the_place_of_scanpys_recipe(counts):
    import scanpy as sc

    ours, theirs = anndata.AnnData(counts.copy()), anndata.AnnData(counts.copy())
    zheng17.recipe_zheng17(ours, n_top_genes=100)
    sc.pp.recipe_zheng17(theirs, n_top_genes=100)
    assert set(theirs.var_names) <= set(ours.var_names)
    assert theirs.n_vars in (99, 100)
    same = ours[:, theirs.var_names]
    if theirs.n_vars == 100:
        np.testing.assert_allclose(same.X, theirs.X, rtol=1e-4, atol=1e-5)
    assert "n_counts_all" in ours.obs
    assert {"n_counts", "mean", "std"} <= set(ours.var)
