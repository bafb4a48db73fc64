"""What is broken is refused with a word on what is wrong, before scipy or anything else touches it; and files that changed."""

from __future__ import annotations

import os

import anndata
import numpy as np
import pytest
from scipy import sparse

import zheng17
from zheng17 import pp

N = 50


@pytest.fixture(scope="module")
def base() -> np.ndarray:
    return np.random.default_rng(5).poisson(0.7, (60, 300)).astype(np.float32)


def put(name: str, at: int, value):
    """A change of one number of one of a matrix' arrays."""

    def change(x):
        array = getattr(x, name).copy()
        array[at] = value
        setattr(x, name, array)

    return change


def shorter(x):
    x.indptr = x.indptr[:-1]


BROKEN = [
    ("csr", put("indptr", 10, 10**9), "X.*indptr decreases|X.*row pointer"),
    ("csr", put("indptr", -1, 10**8), "X.*indptr ends at 100000000, beyond"),
    ("csr", put("indptr", -1, -3), "X.*indptr decreases"),
    ("csr", put("indptr", 0, 1), "X.*start at 0"),
    ("csr", shorter, "X.*indptr has 60 entries, but 60 rows need 61"),
    ("csr", put("indices", 4, 10**8), "X.*100000000"),
    ("csr", put("indices", 4, 300), "X.*300"),
    ("csr", put("indices", 4, -7), "X.*-7"),
    ("csc", put("indptr", 10, 10**9), "X.*indptr decreases"),
    ("csc", put("indptr", -1, 10**8), "X.*indptr ends at 100000000, beyond"),
    ("csc", shorter, "X.*indptr has 300 entries, but 300 columns need 301"),
    ("csc", put("indices", 4, 60), "X.*row index 60 at position 4.*there are 60 rows"),
    ("csc", put("indices", 4, 10**8), "X.*row index 100000000"),
    ("csc", put("indices", 4, -7), "X.*row index -7"),
]
#: AnnData itself has no place for these.
BROKEN_ALONE = [
    ("coo", put("row", 4, 60), "X.*row index 60 at position 4"),
    ("coo", put("row", 4, -10**8), "X.*row index -100000000"),
    ("coo", put("col", 4, 10**8), "X.*column index 100000000"),
    ("bsr", put("indices", 4, 10**8), "X.*column index 100000000"),
    ("bsr", put("indptr", 3, 10**8), "X.*indptr"),
    ("bsr", shorter, "X.*indptr has 60 entries"),
]


def broken(base, kind, change):
    x = sparse.csr_matrix(base).asformat(kind)
    change(x)
    return x


@pytest.mark.parametrize(("kind", "change", "message"), BROKEN + BROKEN_ALONE)
def test_broken_matrices_are_refused(base, kind, change, message):
    with pytest.raises(ValueError, match=message):
        zheng17.summarize(broken(base, kind, change))


STEPS = {
    "recipe_zheng17": lambda adata: zheng17.recipe_zheng17(adata, N),
    "filter_genes": lambda adata: pp.filter_genes(adata, min_counts=1),
    "normalize_total": pp.normalize_total,
    "log1p": pp.log1p,
    "highly_variable_genes": lambda adata: pp.highly_variable_genes(adata, n_top_genes=20, flavor="cell_ranger"),
    "scale": pp.scale,
    "scale without centre": lambda adata: pp.scale(adata, zero_center=False),
    "scale some": lambda adata: pp.scale(adata, mask_obs=np.arange(adata.n_obs) % 2 == 0),
    "pca": lambda adata: pp.pca(adata, n_comps=3),
    "pca of some": lambda adata: pp.pca(adata, n_comps=3, mask_var=np.arange(adata.n_vars) % 2 == 0),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("kind", "change", "message"), BROKEN)
def test_broken_matrices_are_refused_by_every_step(base, kind, change, message, step):
    adata = anndata.AnnData(sparse.csr_matrix(base).asformat(kind))
    change(adata.X)
    with pytest.raises(ValueError, match=message):
        STEPS[step](adata)


@pytest.mark.parametrize("step", STEPS)
def test_masked_arrays_are_refused(base, step):
    adata = anndata.AnnData(np.ma.masked_equal(base, 5))
    if not isinstance(adata.X, np.ma.MaskedArray):
        pytest.skip("this AnnData makes plain arrays of masked ones")
    with pytest.raises(TypeError, match="X: a masked array"):
        STEPS[step](adata)


def test_masked_arrays_are_refused_by_themselves(base):
    masked = np.ma.masked_equal(base, 5)
    for of_matrix in (zheng17.summarize, pp.log1p, pp.scale, pp.pca):
        with pytest.raises(TypeError, match="X: a masked array"):
            of_matrix(masked)


def test_a_log_of_before_is_not_one_of_the_result(base):
    adata = anndata.AnnData(base.copy(), uns={"log1p": {"base": 2}, "other": 1})
    new = zheng17.recipe_zheng17(adata, N, log=False, copy=True)
    assert "log1p" not in new.uns
    assert new.uns["other"] == 1
    assert adata.uns["log1p"] == {"base": 2}
    zheng17.recipe_zheng17(adata, N)
    assert adata.uns["log1p"] == {"base": None}


@pytest.mark.parametrize("other", [(60, 300), (90, 300), (20, 300), (60, 400)])
def test_a_backed_file_that_was_replaced_is_refused(base, tmp_path, other):
    path, new = tmp_path / "a.h5ad", tmp_path / "new.h5ad"
    anndata.AnnData(sparse.csr_matrix(base)).write_h5ad(path)
    adata = anndata.read_h5ad(path, backed="r")
    anndata.AnnData(np.ones(other, dtype=np.float32)).write_h5ad(new)
    os.replace(new, path)
    with pytest.raises(ValueError, match="a.h5ad: the file that backs this AnnData is not at its path any more"):
        zheng17.recipe_zheng17(adata, N)
    assert adata.isbacked
    assert adata.shape == base.shape
    adata.file.close()


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_a_backed_file_is_found_from_another_folder(base, tmp_path, monkeypatch):
    expected = zheng17.recipe_zheng17(anndata.AnnData(base), N, copy=True)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    anndata.AnnData(sparse.csr_matrix(base)).write_h5ad("a.h5ad")
    adata = anndata.read_h5ad("a.h5ad", backed="r")
    monkeypatch.chdir("sub")
    # A file of the same name is not the one.
    anndata.AnnData(np.ones((60, 300), dtype=np.float32)).write_h5ad("a.h5ad")
    zheng17.recipe_zheng17(adata, N)
    np.testing.assert_array_equal(adata.X, expected.X)


def test_what_is_no_anndata_is_refused(base):
    with pytest.raises(TypeError, match="adata must be an AnnData, not str; zheng17.run takes paths"):
        zheng17.recipe_zheng17("counts.h5ad")
    with pytest.raises(TypeError, match=r"adata must be an AnnData, not ndarray; anndata.AnnData\(matrix\)"):
        zheng17.recipe_zheng17(base)
    with pytest.raises(TypeError, match="adata must be an AnnData, not NoneType"):
        zheng17.recipe_zheng17(None)


def test_whole_numbers_of_numpy_are_taken(base, tmp_path):
    expected = zheng17.recipe_zheng17(anndata.AnnData(base), N, n_comps=3, threads=1, copy=True)
    found = zheng17.recipe_zheng17(
        anndata.AnnData(base), np.int64(N), log=np.True_, n_comps=np.uint8(3), threads=np.int32(1), copy=True
    )
    np.testing.assert_array_equal(found.X, expected.X)
    assert found.uns["zheng17"]["parameters"] == expected.uns["zheng17"]["parameters"]


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_top_genes": -1}, ValueError, "n_top_genes must be 1 or more, not -1"),
        ({"memory": -5}, ValueError, "memory must be 0 or more, not -5"),
        ({"memory": 1.5}, TypeError, 'memory must be a number of bytes or a size such as "2GiB", not 1.5'),
        ({"threads": 10_000}, ValueError, "^threads must be at most 1024, not 10000$"),
        ({"threads": "2"}, TypeError, "threads must be a whole number, not '2'"),
        ({"chunk_rows": 0}, ValueError, "chunk_rows must be 1 or more, not 0"),
        ({"max_value": "1"}, TypeError, "max_value must be a number, not '1'"),
        ({"layer": 5}, TypeError, "layer must be a string, not 5"),
        ({"raw": "yes"}, TypeError, "raw must be True or False, not 'yes'"),
    ],
    ids=str,
)
def test_parameters_of_files_are_named(base, tmp_path, parameters, error, message):
    path = tmp_path / "a.h5ad"
    anndata.AnnData(base).write_h5ad(path)
    with pytest.raises(error, match=message):
        zheng17.run(path, tmp_path / "b.h5ad", **({"n_top_genes": N} | parameters))
    with pytest.raises(error, match=message):
        zheng17.plan(path, **({"n_top_genes": N} | parameters))


def test_outputs_that_exist_and_inputs_that_do_not(base, tmp_path):
    path, result, table = tmp_path / "a.h5ad", tmp_path / "b.h5ad", tmp_path / "genes.csv"
    anndata.AnnData(base).write_h5ad(path)
    zheng17.run(path, result, n_top_genes=N, gene_table=table)
    with pytest.raises(FileExistsError, match="b.h5ad: the output exists already; force=True replaces it"):
        zheng17.run(path, result, n_top_genes=N)
    with pytest.raises(FileExistsError, match="genes.csv: the output exists already; force=True replaces it"):
        zheng17.run(path, tmp_path / "c.h5ad", n_top_genes=N, gene_table=table)
    zheng17.run(path, result, n_top_genes=N, force=True)
    with pytest.raises(FileNotFoundError, match="none.h5ad: there is no such file"):
        zheng17.run(tmp_path / "none.h5ad", result)
    with pytest.raises(FileNotFoundError, match="none.h5ad: there is no such file"):
        zheng17.plan(tmp_path / "none.h5ad")
    for wrong in (5, None, b"a.h5ad"):
        with pytest.raises(TypeError, match="path_in must be a path"):
            zheng17.run(wrong, result)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint16])
def test_narrow_indices_are_taken(base, dtype):
    x = sparse.csr_matrix(base[:, :100])
    expected = zheng17.summarize(x).to_bytes()
    x.indices = x.indices.astype(dtype)
    assert zheng17.summarize(x).to_bytes() == expected


@pytest.mark.parametrize(("shape", "message"), [((0, 30), "X: there are no cells"), ((60, 0), "X: there are no genes")])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_what_is_empty_is_refused(shape, message, kind):
    with pytest.raises(ValueError, match=message):
        zheng17.recipe_zheng17(anndata.AnnData(kind(np.zeros(shape, np.float32))), N)


def test_names_are_printed_without_control_characters(base):
    wrong = base.copy()
    wrong[3, 2] = -1
    adata = anndata.AnnData(wrong)
    adata.obs_names = [f"a\n\x1b[31m{at}" for at in range(60)]
    with pytest.raises(ValueError, match=r"cell 3 \(a\\n.*1b.*\[31m3\)") as caught:
        zheng17.recipe_zheng17(adata, N)
    assert str(caught.value).isprintable()
