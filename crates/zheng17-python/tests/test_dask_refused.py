"""What :mod:`zheng17.dask` refuses: chunks that are not what their array says, files that changed, parameters."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
from scipy import sparse

import zheng17

pytest.importorskip("dask.array")
import dask
import dask.array as da

import zheng17.dask

N = 50


@pytest.fixture(scope="module")
def base() -> np.ndarray:
    return np.random.default_rng(5).poisson(0.7, (60, 300)).astype(np.float32)


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def changed(base, change, chunks=(20, 300)):
    """An AnnData whose chunks are not what their array says."""
    x = da.from_array(base, chunks=chunks)
    return anndata.AnnData(x.map_blocks(change, dtype=x.dtype, meta=np.empty((0, 0), x.dtype), chunks=x.chunks))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda chunk: chunk[:, :50], "X: the chunk of cells \d+..\d+ has 50 genes, 300 expected"),
        (lambda chunk: chunk[:5], "X: the chunk of cells \d+..\d+ has 5 cells, 20 expected"),
        (lambda chunk: chunk[0], "X: a matrix of cells x genes is expected"),
    ],
)
def test_chunks_of_another_shape_are_refused(base, change, message):
    adata = changed(base, change)
    with pytest.raises((ValueError, TypeError), match=message):
        zheng17.recipe_zheng17(adata, N)


def broken_chunk(chunk):
    chunk = sparse.csc_matrix(chunk)
    chunk.indices[3] = 10**8
    return chunk


@pytest.mark.parametrize("chunks", [(20, 300), (20, 100)])
def test_broken_chunks_are_refused(base, chunks):
    x = da.from_array(base, chunks=chunks)
    x = x.map_blocks(broken_chunk, dtype=x.dtype, meta=sparse.csr_matrix((0, 0), dtype=x.dtype))
    with pytest.raises(ValueError, match="X.*row index 100000000"):
        zheng17.recipe_zheng17(anndata.AnnData(x), N)


def test_masked_chunks_are_refused(base):
    x = da.ma.masked_equal(da.from_array(base, chunks=(20, 300)), 5)
    with pytest.raises(TypeError, match="X: a masked array"):
        zheng17.recipe_zheng17(anndata.AnnData(x), N)
    with pytest.raises(TypeError, match="X: a masked array"):
        zheng17.recipe_zheng17(changed(base, lambda chunk: np.ma.masked_equal(chunk, 5)), N)


def test_a_file_that_changed_is_refused(base, tmp_path):
    path = tmp_path / "a.h5ad"
    anndata.AnnData(sparse.csr_matrix(base)).write_h5ad(path)
    adata = zheng17.dask.read(path, chunk_rows=20)
    np.testing.assert_array_equal(adata.X.compute().toarray(), base)
    anndata.AnnData(sparse.csr_matrix(base + 1)).write_h5ad(path)
    for use in (lambda: adata.X.compute(), lambda: zheng17.recipe_zheng17(adata, N)):
        with pytest.raises(ValueError, match="a.h5ad is not the file any more"):
            use()
    path.unlink()
    with pytest.raises(ValueError, match="a.h5ad is not the file any more"):
        adata.X.compute()


def test_chunks_of_a_file_are_as_scipy_wants_them(base, tmp_path):
    path = tmp_path / "a.h5ad"
    anndata.AnnData(sparse.csr_matrix(base)).write_h5ad(path)
    chunk = zheng17.dask.read(path, chunk_rows=20).X.blocks[0].compute()
    assert chunk.indices.dtype == chunk.indptr.dtype == np.int32
    np.testing.assert_array_equal(chunk[::2].toarray(), base[:20:2])


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_comps": 0},
        {"n_comps": -1},
        {"n_comps": N},
        {"n_comps": 2.5},
        {"n_comps": "5"},
        {"n_top_genes": 0},
        {"n_top_genes": -3},
        {"n_top_genes": 2.5},
        {"version": "2.0"},
    ],
    ids=str,
)
def test_parameters_are_looked_at_before_anything_is_computed(base, parameters):
    computed = []

    def seen(chunk):
        computed.append(chunk.shape)
        return chunk

    adata = changed(base, seen)
    with pytest.raises((ValueError, TypeError)):
        zheng17.recipe_zheng17(adata, **({"n_top_genes": N} | parameters))
    assert computed == []


def test_a_log_of_before_is_not_one_of_the_result(base):
    adata = anndata.AnnData(da.from_array(base, chunks=(20, 300)), uns={"log1p": {"base": 2}})
    zheng17.recipe_zheng17(adata, N, log=False)
    assert "log1p" not in adata.uns


@pytest.mark.parametrize(("shape", "message"), [((0, 30), "X: there are no cells"), ((60, 0), "X: there are no genes")])
def test_what_is_empty_is_refused(shape, message):
    adata = anndata.AnnData(da.from_array(np.zeros(shape, np.float32), chunks=(20, 30)))
    with pytest.raises(ValueError, match=message):
        zheng17.recipe_zheng17(adata, N)


def test_names_are_printed_without_control_characters(base):
    wrong = base.copy()
    wrong[3, 2] = -1
    adata = anndata.AnnData(da.from_array(wrong, chunks=(20, 300)))
    adata.obs_names = [f"a\n\x1b[31m{at}" for at in range(60)]
    with pytest.raises(ValueError, match=r"cell 3 \(a\\n.*1b.*\[31m3\)") as caught:
        zheng17.recipe_zheng17(adata, N)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("recipe", [zheng17.recipe_zheng17, zheng17.dask.recipe_zheng17])
def test_warnings_point_at_the_caller(base, recipe):
    adata = anndata.AnnData(da.from_array(base / 2, chunks=(20, 300)))
    with pytest.warns(UserWarning, match="not integers") as caught:
        recipe(adata, N)
    assert caught[0].filename == __file__


def test_summarize_is_for_matrices_in_memory(base):
    with pytest.raises(TypeError, match="X: a matrix in memory is expected, not an array of Dask"):
        zheng17.summarize(da.from_array(base))
