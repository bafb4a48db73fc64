"""zheng17.pp against scanpy's own steps, in the same process: values, places and types of results; and what is refused."""

from __future__ import annotations

import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
from compare import assert_close, assert_same, assert_same_components, dense, full
from scipy import sparse

import zheng17
from zheng17 import pp

KINDS = {
    "csr": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "csc_array": sparse.csc_array,
    "dense": lambda x: x.toarray(),
    "fortran": lambda x: np.asfortranarray(x.toarray()),
}
DTYPES = (np.float32, np.float64, np.int32, np.uint8, np.int64)
STEPS = {
    "filter_genes": {"min_counts": 200},
    "normalize_total": {},
    "log1p": {},
    "highly_variable_genes": {"n_top_genes": 50, "flavor": "cell_ranger"},
    "scale": {},
    "pca": {"n_comps": 5},
}


@pytest.fixture(scope="module")
def sc():
    """scanpy 1.12 or later, which zheng17.pp follows."""
    scanpy = pytest.importorskip("scanpy")
    if tuple(map(int, scanpy.__version__.split(".")[:2])) < (1, 12):
        pytest.skip("needs scanpy 1.12 or later")
    warnings.simplefilter("ignore")
    return scanpy


@pytest.fixture(params=[(kind, np.float32) for kind in KINDS] + [("csr", dtype) for dtype in DTYPES[1:]], ids=str)
def twice(request, counts):
    """The same counts for us and for scanpy, in every kind of X; with an empty cell and an empty gene."""
    kind, dtype = request.param
    some = counts[:, :400].tolil()
    some[3] = 0
    some[:, 7] = 0
    x = KINDS[kind](some.tocsr().astype(dtype))
    return anndata.AnnData(x.copy()), anndata.AnnData(x)


def same_class(found, expected) -> None:
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize(
    "limit", [{"min_counts": 40}, {"min_cells": 30}, {"max_counts": 300}, {"max_cells": 400}], ids=str
)
def test_filter_genes(sc, twice, limit):
    ours, theirs = twice
    for found, expected in zip(
        pp.filter_genes(ours, inplace=False, **limit), sc.pp.filter_genes(theirs, inplace=False, **limit)
    ):
        assert_close(found, expected)
    keep, number = pp.filter_genes(ours.X, **limit)
    pp.filter_genes(ours, **limit)
    sc.pp.filter_genes(theirs, **limit)
    assert 0 < ours.n_vars == keep.sum() < 400
    assert list(ours.var_names) == list(theirs.var_names)
    assert list(ours.var) == list(theirs.var)
    assert_close(ours.var.iloc[:, 0], number[keep])
    same_class(ours.X, theirs.X)
    assert_close(ours.X, theirs.X, 0)


@pytest.mark.parametrize(
    "options", [{}, {"target_sum": 1e4}, {"exclude_highly_expressed": True, "max_fraction": 0.02}], ids=str
)
def test_normalize_total(sc, twice, options):
    ours, theirs = twice
    before = ours.copy()
    separate = pp.normalize_total(ours, inplace=False, **options)
    assert_same(ours, before)
    pp.normalize_total(ours, key_added="factor", **options)
    sc.pp.normalize_total(theirs, key_added="factor", **options)
    assert list(ours.obs) == ["factor"]
    assert_close(ours.X, theirs.X)
    same_class(ours.X, theirs.X)
    assert_close(ours.obs["factor"], theirs.obs["factor"])
    assert_close(separate["X"], ours.X, 0)
    assert_close(separate["norm_factor"], ours.obs["factor"], 0)


@pytest.mark.parametrize("base", [None, 2])
def test_log1p(sc, twice, base):
    ours, theirs = twice
    pp.log1p(ours, base=base)
    sc.pp.log1p(theirs, base=base)
    assert_close(ours.X, theirs.X)
    same_class(ours.X, theirs.X)
    assert dict(ours.uns["log1p"]) == dict(theirs.uns["log1p"]) == {"base": base}


@pytest.mark.parametrize(
    "options", [{"n_top_genes": 60}, {}, {"n_top_genes": 60, "filter_unexpressed_genes": True}], ids=str
)
def test_highly_variable_genes(sc, twice, options):
    ours, theirs = twice
    sc.pp.normalize_total(ours)
    sc.pp.log1p(ours)
    theirs = ours.copy()
    table = pp.highly_variable_genes(ours, flavor="cell_ranger", inplace=False, **options)
    pp.highly_variable_genes(ours, flavor="cell_ranger", **options)
    try:
        sc.pp.highly_variable_genes(theirs, flavor="cell_ranger", **options)
    except TypeError:
        pytest.skip("this scanpy has no filter_unexpressed_genes")
    np.testing.assert_array_equal(ours.var["highly_variable"], theirs.var["highly_variable"])
    for column in ("means", "dispersions", "dispersions_norm"):
        assert_close(ours.var[column], theirs.var[column], 1e-4)
        assert ours.var[column].dtype == theirs.var[column].dtype
        assert_close(table[column], ours.var[column])
    assert ours.uns["hvg"] == theirs.uns["hvg"]
    pp.highly_variable_genes(theirs, flavor="cell_ranger", subset=True, **options)
    assert list(theirs.var_names) == list(table.index[table["highly_variable"]])
    assert theirs.var["highly_variable"].all()


@pytest.mark.parametrize(
    "options", [{}, {"max_value": 1.5}, {"zero_center": False}, {"zero_center": False, "max_value": 0.5}], ids=str
)
def test_scale(sc, twice, options):
    ours, theirs = twice
    pp.scale(ours, **options)
    if theirs.X.dtype == np.uint8:
        theirs.X = theirs.X.astype(np.int64)
    sc.pp.scale(theirs, **options)
    assert_close(ours.X, theirs.X)
    assert sparse.issparse(ours.X) == sparse.issparse(theirs.X)
    for column in ("mean", "std"):
        assert_close(ours.var[column], theirs.var[column])


@pytest.mark.parametrize("zero_center", [True, False])
def test_scale_some_cells(sc, counts, zero_center):
    x = counts[:, :100].astype(np.float64)
    chosen = np.arange(600) % 3 > 0
    for kind in (KINDS["dense"], KINDS["csr"]) if not zero_center else (KINDS["dense"],):
        ours, theirs = anndata.AnnData(kind(x), obs=pd.DataFrame({"chosen": chosen})), anndata.AnnData(kind(x))
        pp.scale(ours, mask_obs="chosen", zero_center=zero_center)
        sc.pp.scale(theirs, mask_obs=chosen, zero_center=zero_center)
        assert_close(ours.X, theirs.X)
        assert_close(ours.var["mean of chosen"], theirs.var["mean with mask"])
        assert_close(ours.var["std of chosen"], theirs.var["std with mask"])


def test_pca(sc, twice):
    ours, theirs = twice
    for adata in (ours, theirs):
        adata.X = adata.X.astype(np.float64)
        adata.var["highly_variable"] = np.arange(400) % 4 == 0
    pp.pca(ours, n_comps=8)
    sc.pp.pca(theirs, n_comps=8)
    assert_same_components(ours.obsm["X_pca"], theirs.obsm["X_pca"], 1e-4)
    assert_same_components(ours.varm["PCs"], theirs.varm["PCs"], 1e-4)
    assert ours.obsm["X_pca"].dtype == theirs.obsm["X_pca"].dtype
    assert not ours.varm["PCs"][~ours.var["highly_variable"]].any()
    for key in ("variance", "variance_ratio"):
        assert_close(ours.uns["pca"][key], theirs.uns["pca"][key])
    assert dict(ours.uns["pca"]["params"]) == dict(theirs.uns["pca"]["params"])
    largest = np.take_along_axis(ours.varm["PCs"], np.abs(ours.varm["PCs"]).argmax(axis=0)[None], axis=0)
    assert (largest > 0).all()


def test_pca_of_scaled_and_of_large_values(sc, counts):
    for x in (pp.scale(counts[:, :80].astype(np.float64)), 1e3 + counts[:, :80].toarray().astype(np.float64)):
        scores, loadings, ratios, variances = pp.pca(x, n_comps=6, return_info=True)
        theirs = sc.pp.pca(x, n_comps=6, return_info=True)
        assert_same_components(scores, theirs[0], 1e-4)
        assert_same_components(loadings.T, theirs[1].T, 1e-4)
        assert_close(ratios, theirs[2])
        assert_close(variances, theirs[3])
        np.testing.assert_array_equal(pp.pca(x, n_comps=6), scores)


def test_pca_parameters(counts):
    adata = anndata.AnnData(counts[:, :100])
    adata.layers["other"] = counts[:, 100:200]
    chosen = np.arange(100) < 30
    pp.pca(adata, mask_var=chosen, key_added="few", dtype="float64")
    assert adata.obsm["few"].shape == (600, 29)
    assert adata.obsm["few"].dtype == np.float64
    new = pp.pca(adata, n_comps=3, layer="other", copy=True, svd_solver="arpack", random_state=5)
    assert "X_pca" not in adata.obsm
    assert new.uns["pca"]["params"]["layer"] == "other"
    np.testing.assert_array_equal(new.obsm["X_pca"], pp.pca(counts[:, 100:200], 3))
    with pytest.raises(ValueError, match="at most 99"):
        pp.pca(adata, n_comps=100)
    with pytest.raises(ValueError, match="svd_solver='randomized'"):
        pp.pca(adata, svd_solver="randomized")
    broken = counts[:, :100].copy()
    broken.data[0] = np.nan
    adata.X = broken
    with pytest.raises(ValueError, match=r"X: gene \d+ \(\d+\) has values that are not finite"):
        pp.pca(adata, n_comps=3)
    with pytest.raises(ValueError, match="at most 10000"):
        pp.pca(sparse.csr_matrix((5, 10_001), dtype=np.float32), n_comps=3)


@pytest.mark.parametrize("ours_first", [True, False])
def test_every_step_goes_before_and_after_scanpys(sc, counts, ours_first):
    reference = anndata.AnnData(counts.copy())
    mixed = reference.copy()
    steps = ("filter_genes", "normalize_total", "log1p", "highly_variable_genes", "scale", "pca")
    for at, step in enumerate(steps):
        options = STEPS[step] | ({"key_added": "n_counts_all"} if step == "normalize_total" else {})
        getattr(sc.pp, step)(reference, **options)
        getattr(pp if (at % 2 == 0) == ours_first else sc.pp, step)(mixed, **options)
    assert list(mixed.var_names) == list(reference.var_names)
    assert list(mixed.var["highly_variable"]) == list(reference.var["highly_variable"])
    assert_close(mixed.X, reference.X)
    assert_close(mixed.obs["n_counts_all"], reference.obs["n_counts_all"])
    assert_same_components(mixed.obsm["X_pca"][:, :2], reference.obsm["X_pca"][:, :2], 1e-2)
    sc.pp.neighbors(mixed)


def the_steps(adata, n_top_genes: int):
    """The recipe, step by step."""
    pp.filter_genes(adata, min_counts=1)
    pp.normalize_total(adata, key_added="n_counts_all")
    pp.highly_variable_genes(adata, n_top_genes=n_top_genes, flavor="cell_ranger", absolute=True, subset=True)
    pp.normalize_total(adata)
    pp.log1p(adata)
    pp.scale(adata)


def test_the_steps_are_the_recipe(counts):
    steps, recipe = anndata.AnnData(counts.copy()), anndata.AnnData(counts.copy())
    the_steps(steps, 100)
    zheng17.recipe_zheng17(recipe, n_top_genes=100)
    assert list(steps.var_names) == list(recipe.var_names)
    assert_close(steps.X, recipe.X)
    assert_close(steps.var["dispersions_norm"], recipe.var["dispersions_norm"])
    assert_close(steps.obs["n_counts_all"] * recipe.uns["zheng17"]["target_sum"], recipe.obs["n_counts_all"])


@pytest.mark.parametrize("file", ["heart_1k_v2.10xv2.h5", "scvi_pbmc_5k_protein_v3.h5ad"])
def test_the_steps_are_the_recipe_on_real_counts(sc, shared, file):
    path = shared / "data" / file
    steps = sc.read_10x_h5(path) if path.suffix == ".h5" else anndata.read_h5ad(path)
    steps.var_names_make_unique()
    recipe = zheng17.recipe_zheng17(steps, copy=True)
    the_steps(steps, 1000)
    assert list(steps.var_names) == list(recipe.var_names)
    assert_close(steps.X, recipe.X, 1e-4)


@pytest.mark.parametrize("step", STEPS)
def test_only_what_is_meant_to_changes(counts, step):
    adata = full(counts[:100, :300])
    before = adata.copy()
    new = getattr(pp, step)(adata, **STEPS[step], **({} if step == "highly_variable_genes" else {"copy": True}))
    if step != "highly_variable_genes":
        assert_same(adata, before)
        assert new is not None
    else:
        new = adata
    assert list(new.obs_names) == list(before.obs_names)
    assert_same(new.raw.X, before.raw.X)
    kept = [before.var_names.get_loc(name) for name in new.var_names]
    assert_same(new.layers["counts"], before.layers["counts"][:, kept])
    assert_same(new.varm["weights"], before.varm["weights"][kept])
    assert_same(new.obsm["place"], before.obsm["place"])


@pytest.mark.parametrize("step", ["normalize_total", "log1p", "scale", "pca", "highly_variable_genes"])
def test_a_layer_instead_of_x(counts, step):
    adata = anndata.AnnData(counts[:, :300].copy())
    adata.layers["other"] = counts[:, 300:600].copy()
    from_x = anndata.AnnData(counts[:, 300:600].copy())
    getattr(pp, step)(adata, layer="other", **STEPS[step])
    getattr(pp, step)(from_x, **STEPS[step])
    assert_same(adata.X, counts[:, :300])
    assert_close(adata.layers["other"], from_x.X, 0)
    with pytest.raises(ValueError, match="there is no layer 'none'; there is other"):
        getattr(pp, step)(adata, layer="none", **STEPS[step])


@pytest.mark.parametrize("step", STEPS)
def test_views_become_objects_and_leave_their_origin_alone(counts, step):
    origin = full(counts[:200, :400])
    before = origin.copy()
    view = origin[50:150, 10:]
    expected = view.copy()
    getattr(pp, step)(expected, **STEPS[step])
    getattr(pp, step)(view, **STEPS[step])
    assert_same(origin, before)
    assert not view.is_view
    assert_same(view, expected)


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
@pytest.mark.parametrize("step", ["normalize_total", "highly_variable_genes"])
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_what_is_no_count_is_named_and_nothing_touched(counts, step, value, kind):
    x = counts[:50, :300].tolil()
    x[20, 30] = value
    adata = full(KINDS[kind](x.tocsr()))
    before = adata.copy()
    with pytest.raises(ValueError, match=r"X: .*cell 20 \(cell20\) .* gene 30 \(gene30\)"):
        getattr(pp, step)(adata, **STEPS[step])
    assert_same(adata, before)


@pytest.mark.parametrize("step", STEPS)
def test_an_object_is_untouched_where_a_warning_is_an_error(counts, step):
    x = counts[:50, :300].tolil()
    x[3] = 0
    adata = full(x.tocsr())[:, 5:]
    before = adata.copy()
    with warnings.catch_warnings(), pytest.raises(UserWarning):
        warnings.simplefilter("error", UserWarning)
        getattr(pp, step)(adata, **STEPS[step])
        warnings.warn("this step warns of nothing", UserWarning, stacklevel=1)
    if step != "filter_genes":
        assert adata.is_view
        assert_same(adata.copy(), before)


def test_parameters_that_do_not_apply_are_refused_and_say_who_has_them(counts):
    adata = full(counts[:50, :300])
    before = adata.copy()
    refused = [
        ("highly_variable_genes", {}, "scanpy's default.*scanpy.pp.highly_variable_genes has the others"),
        ("highly_variable_genes", {"flavor": "seurat"}, "'seurat'"),
        ("highly_variable_genes", {"flavor": "seurat_v3"}, "'seurat_v3'"),
        ("highly_variable_genes", {"flavor": "cell_ranger", "batch_key": "batch"}, "batch_key='batch'.*scanpy"),
        ("highly_variable_genes", {"flavor": "cell_ranger", "n_bins": 10}, "n_bins=10"),
        ("highly_variable_genes", {"flavor": "cell_ranger", "span": 0.1}, "span"),
        ("highly_variable_genes", {"flavor": "cell_ranger", "n_top_genes": 0}, "1 or more"),
        ("highly_variable_genes", {"flavor": "cell_ranger", "absolute": True}, "n_top_genes"),
        ("normalize_total", {"obsm": "place"}, "obsm='place'"),
        ("normalize_total", {"target_sum": 0}, "positive"),
        ("normalize_total", {"max_fraction": 2}, "between 0 and 1"),
        ("normalize_total", {"copy": True, "inplace": False}, "go together"),
        ("log1p", {"chunked": True}, "chunked"),
        ("log1p", {"base": 1}, "base"),
        ("scale", {"obsm": "place"}, "obsm"),
        ("scale", {"max_value": -1}, "max_value"),
        ("scale", {"mask_obs": "nothing"}, "no such column"),
        ("pca", {"zero_center": False}, "zero_center=False.*scanpy"),
        ("pca", {"chunked": True}, "chunked"),
        ("pca", {"mask_var": np.ones(3, dtype=bool)}, "300 booleans"),
        ("filter_genes", {}, "exactly one"),
        ("filter_genes", {"min_counts": 1, "max_cells": 3}, "exactly one"),
    ]
    for step, options, message in refused:
        with pytest.raises(ValueError, match=message):
            getattr(pp, step)(adata, **options)
        assert_same(adata, before)


def test_every_parameter_of_scanpys_is_there(sc):
    from inspect import signature

    if not sc.__version__.startswith("1.12"):
        pytest.skip("these are the signatures of scanpy 1.12")
    for step in STEPS:
        ours, theirs = signature(getattr(pp, step)).parameters, signature(getattr(sc.pp, step)).parameters
        assert list(theirs) == [name for name in ours if name != "absolute"], step
        for name, parameter in theirs.items():
            assert ours[name].kind == parameter.kind, (step, name)
            if name not in ("flavor", "mask_var"):
                assert ours[name].default == parameter.default, (step, name)


def test_duplicates_and_order_make_no_difference(counts):
    tidy = counts[:80, :300].copy()
    rows, columns = tidy.nonzero()
    values = np.asarray(tidy[rows, columns]).ravel()
    order = np.random.default_rng(0).permutation(len(rows))
    # Every entry as two halves, in any order.
    parts = [np.r_[part[order], part] for part in (values / 2, rows, columns)]
    untidy = sparse.csr_matrix((80, 300), dtype=np.float32)
    by_row = np.argsort(parts[1], kind="stable")
    untidy.data, untidy.indices = parts[0][by_row].astype(np.float32), parts[2][by_row].astype(np.int32)
    untidy.indptr = np.searchsorted(parts[1][by_row], np.arange(81)).astype(np.int32)
    for step, options in STEPS.items():
        clean, messy = anndata.AnnData(tidy.copy()), anndata.AnnData(untidy.copy())
        getattr(pp, step)(clean, **options)
        getattr(pp, step)(messy, **options)
        assert_close(dense(messy.X), dense(clean.X), 0)
        for column in clean.var:
            np.testing.assert_array_equal(messy.var[column], clean.var[column], err_msg=step)


def test_a_result_shares_nothing_with_what_was_there(counts):
    x = counts[:50, :300].copy()
    for step in ("normalize_total", "log1p"):
        adata = anndata.AnnData(x)
        adata.layers["same"] = adata.X
        before = adata.layers["same"].copy()
        getattr(pp, step)(adata)
        adata.X.indices[:] = 0
        adata.X.data[:] = 0
        assert_same(adata.layers["same"], before)


def test_matrices_instead_of_anndata(counts):
    x = counts[:, :200]
    values = x.toarray().astype(np.float64)
    deviation = values.std(axis=0, ddof=1)
    scaled = (values - values.mean(axis=0)) / np.where(deviation == 0, 1, deviation)
    for kind in KINDS.values():
        before = kind(x)
        assert_close(pp.log1p(before), np.log1p(values))
        assert_close(pp.scale(before), scaled)
        assert_close(before, x, 0)
    np.testing.assert_array_equal(
        pp.log1p(np.array([[-1.0, -2.0, np.nan, np.inf]])), [[-np.inf, np.nan, np.nan, np.inf]]
    )
    for wrong in (np.array([["a"]]), np.zeros(3), np.zeros((2, 2), dtype=complex)):
        with pytest.raises(TypeError):
            pp.log1p(wrong)


def test_data_without_an_answer_say_so(counts):
    empty = anndata.AnnData(sparse.csr_matrix((5, 4), dtype=np.float32))
    with pytest.raises(ValueError, match="every count is 0"):
        pp.normalize_total(empty)
    one = anndata.AnnData(counts[:1])
    for step in ("highly_variable_genes", "scale"):
        with pytest.raises(ValueError, match="two cells"):
            getattr(pp, step)(one, **STEPS[step])


def test_backed_and_dask_are_sent_elsewhere(counts, tmp_path):
    anndata.AnnData(counts[:50]).write_h5ad(tmp_path / "counts.h5ad")
    backed = anndata.read_h5ad(tmp_path / "counts.h5ad", backed="r")
    array = pytest.importorskip("dask.array")
    lazy = anndata.AnnData(array.from_array(counts[:50].toarray(), chunks=(10, -1)))
    for step, options in STEPS.items():
        with pytest.raises(NotImplementedError, match="zheng17.recipe_zheng17 and zheng17.run"):
            getattr(pp, step)(backed, **options)
        with pytest.raises(NotImplementedError, match=f"zheng17.recipe_zheng17.*scanpy.pp.{step} for this step"):
            getattr(pp, step)(lazy, **options)
