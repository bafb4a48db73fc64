"""The chunk functions: a loop over chunks, in any order and of any size, has the bits of the recipe in one piece."""

from __future__ import annotations

import pickle

import anndata
import numpy as np
import pytest
from scipy import sparse

import zheng17
from zheng17 import _chunks


def in_one_piece(counts, **parameters):
    adata = anndata.AnnData(counts)
    zheng17.recipe_zheng17(adata, **parameters)
    return adata


def chunks_of(counts, rows: int):
    return [(first, counts[first : first + rows]) for first in range(0, counts.shape[0], rows)]


def planned(chunks, **parameters):
    """The ready plan. Parts go through pickle and are merged backwards, as an engine may do it."""

    def merged(look):
        return [pickle.loads(pickle.dumps(look(X, first))) for first, X in chunks][::-1]

    plan = zheng17.plan_from(zheng17.Summary.merge(merged(zheng17.summarize)), **parameters)
    while not plan.ready:
        plan = plan.after(merged(pickle.loads(pickle.dumps(plan)).look))
    return plan


def assert_same(plan, chunks, adata):
    scaled = [zheng17.apply(plan, X, first, float64=adata.X.dtype == np.float64) for first, X in chunks]
    np.testing.assert_array_equal(np.concatenate(scaled), adata.X)
    assert plan.result["digest"] == adata.uns["zheng17"]["summary_sha256"]
    assert plan.result["target_sum"] == adata.uns["zheng17"]["target_sum"]
    assert plan.result["hvg_target_sum"] == adata.uns["zheng17"]["hvg_target_sum"]
    assert plan.result["warnings"] == list(adata.uns["zheng17"]["warnings"])
    np.testing.assert_array_equal(plan.result["n_counts_all"], adata.obs["n_counts_all"])
    np.testing.assert_array_equal(plan.result["std"], adata.var["std"])


@pytest.mark.parametrize("rows", [1, 7, 100, 600])
@pytest.mark.parametrize("version", ["exact", "scanpy-1.12", "scanpy-main"])
def test_chunks_have_the_bits_of_the_whole(counts, version, rows):
    chunks = chunks_of(counts, rows)
    plan = planned(chunks, n_top_genes=200, version=version)
    assert_same(plan, chunks, in_one_piece(counts, n_top_genes=200, version=version))


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("version", ["exact", "scanpy-1.12", "scanpy-main"])
def test_without_logarithm(counts, version, log):
    chunks = chunks_of(counts, 250)
    plan = planned(chunks, n_top_genes=100, version=version, log=log)
    assert_same(plan, chunks, in_one_piece(counts, n_top_genes=100, version=version, log=log))


@pytest.mark.parametrize(
    "convert",
    [
        lambda counts: counts.toarray(),
        lambda counts: counts.astype(np.int64),
        lambda counts: counts.astype(np.float64),
        lambda counts: sparse.csr_array(counts),
        lambda counts: counts.tocsc(),
    ],
    ids=["dense", "int64", "float64", "csr_array", "csc"],
)
def test_kinds_of_matrices(counts, convert):
    matrix = convert(counts)
    chunks = chunks_of(matrix, 130)
    assert_same(planned(chunks, n_top_genes=100), chunks, in_one_piece(matrix, n_top_genes=100))


def test_genes_of_fractional_totals_are_left_out_of_cell_totals(counts):
    fractions = counts.copy().astype(np.float64)
    fractions[:3, 5] = 0.25
    fractions[3:, 5] = 0
    chunks = chunks_of(fractions, 90)
    assert zheng17.Summary.merge([zheng17.summarize(X, first) for first, X in chunks]).genes_to_exclude()[5]
    with pytest.warns(UserWarning, match="not"):
        adata = in_one_piece(fractions, n_top_genes=100)
    assert_same(planned(chunks, n_top_genes=100), chunks, adata)


def test_duplicates_are_counted_in_all_chunks(counts):
    parts = (np.append(counts.data, [1, 2]), np.append(counts.indices, [3, 3]), counts.indptr.copy())
    parts[2][-1] += 2
    twice = sparse.csr_matrix(parts, shape=counts.shape)
    chunks = chunks_of(twice, 150)
    with pytest.warns(UserWarning):
        adata = in_one_piece(twice, n_top_genes=100)
    assert_same(planned(chunks, n_top_genes=100), chunks, adata)


def test_selected_cells_are_few_and_enough(counts):
    chunks = chunks_of(counts, 200)
    plan = zheng17.plan_from(
        zheng17.Summary.merge([zheng17.summarize(X, first) for first, X in chunks]), n_top_genes=60
    )
    kept = [(first, plan.select(X, first)) for first, X in chunks]
    assert sum(len(cells.data) for _, cells in kept) < counts.nnz / 2
    while not plan.ready:
        plan = plan.after([plan.look(cells, first) for first, cells in kept])
    assert_same(plan, kept, in_one_piece(counts, n_top_genes=60))
    # Some rows and some genes of them are the same rows and genes of the result.
    whole = zheng17.apply(plan, kept[1][1], 200)
    some = kept[1][1].rows(10, 20).genes(np.array([2, 5]))
    np.testing.assert_array_equal(plan.chunks.of_genes(np.array([2, 5])).apply(some), whole[10:20][:, [2, 5]])


def test_components_from_sums_of_products(counts):
    chunks = chunks_of(counts, 128)
    plan = planned(chunks, n_top_genes=100)
    adata = in_one_piece(counts, n_top_genes=100, n_comps=10)
    components = plan.components(_chunks.Gram.merge([plan.chunks.gram(X, first) for first, X in chunks]), 10)
    np.testing.assert_allclose(components.variance, adata.uns["pca"]["variance"], rtol=1e-6)
    np.testing.assert_allclose(components.loadings, adata.varm["PCs"], atol=1e-6)
    scores = np.concatenate([plan.chunks.scores(X, components, first) for first, X in chunks])
    np.testing.assert_allclose(scores, adata.obsm["X_pca"], atol=1e-4)


def test_what_travels_is_small(counts):
    plan = planned(chunks_of(counts, 100), n_top_genes=100)
    assert len(pickle.dumps(plan.chunks)) < 3 * 8 * 100 + 1000
    assert len(pickle.dumps(zheng17.summarize(counts[:100]))) < 48 * counts.shape[1] + 8 * 100 + 300


def test_a_wrong_value_is_named_by_its_place_among_all_cells(counts):
    broken = counts.copy()
    broken.data[broken.indptr[321]] = np.nan
    gene = broken.indices[broken.indptr[321]]
    with pytest.raises(ValueError, match=rf"cell 321 has NaN for gene {gene}; .*cells 300\.\.400"):
        zheng17.summarize(broken[300:400], 300)


def test_summaries_of_the_same_cell_do_not_merge(counts):
    with pytest.raises(ValueError, match="cell was summarised twice"):
        zheng17.Summary.merge([zheng17.summarize(counts[:50]), zheng17.summarize(counts[:50])])


def test_a_missing_chunk_is_noticed(counts):
    with pytest.raises(ValueError, match="not summarised"):
        zheng17.plan_from(zheng17.summarize(counts[50:], 50))


def test_sums_in_cell_order_are_refused(counts):
    with pytest.raises(NotImplementedError, match="scanpy-1.4 sums in cell order"):
        zheng17.plan_from(zheng17.summarize(counts), version="scanpy-1.4")


@pytest.mark.parametrize("parameters", [{"n_top_genes": 0}, {"version": "exactly"}, {"max_value": -1.0}])
def test_parameters_that_make_no_sense(counts, parameters):
    with pytest.raises(ValueError):
        zheng17.plan_from(zheng17.summarize(counts), **parameters)


def test_plans_say_what_they_need(counts):
    plan = zheng17.plan_from(zheng17.summarize(counts), n_top_genes=10)
    with pytest.raises(ValueError, match="not ready"):
        zheng17.apply(plan, counts)
    ready = planned([(0, counts)], n_top_genes=10)
    with pytest.raises(ValueError, match="asks for nothing"):
        ready.look(counts)


def test_chunks_that_do_not_belong_together(counts):
    summary = zheng17.summarize(counts)
    with pytest.raises(ValueError, match="genes"):
        zheng17.Summary.merge([zheng17.summarize(counts[:50]), zheng17.summarize(counts[50:, :30], 50)])
    with pytest.raises(TypeError, match="a Summary is expected, not int"):
        zheng17.plan_from(5)
    plan = zheng17.plan_from(summary, n_top_genes=10)
    with pytest.raises(ValueError, match="there is none"):
        plan.after([])
    for wrong in ([5], 5, [plan.look(counts), 5]):
        with pytest.raises(TypeError, match="asks for 'selected': .* of type Summary"):
            plan.after(wrong)
    with pytest.raises(ValueError, match="the chunk has 30 genes, 1200 expected"):
        plan.look(counts[:, :30])
    with pytest.raises(ValueError, match="not summarised"):
        plan.after([plan.look(counts[:50])])
    plan = plan.after([plan.look(counts)])
    with pytest.raises(TypeError, match="of type Moments"):
        plan.after(summary)
    with pytest.raises(ValueError, match="moments of 50 cells, but 600 cells were summarised"):
        plan.after([plan.look(counts[:50])])
    plan = plan.after(plan.look(counts))
    for wrong in (counts[:, :30], sparse.hstack([counts, counts], format="csr")):
        with pytest.raises(ValueError, match="genes, 1200 expected"):
            zheng17.apply(plan, wrong)
    with pytest.raises(ValueError, match=r"cells 10\.\.610 of 600"):
        zheng17.apply(plan, counts, 10)
    for first in (-1, 2**63, 2**64):
        with pytest.raises(ValueError, match="first_cell must be"):
            zheng17.apply(plan, counts, first)
        with pytest.raises(ValueError, match="first_cell must be"):
            zheng17.summarize(counts, first)
    with pytest.raises(TypeError, match="first_cell must be a whole number, not 'a'"):
        zheng17.summarize(counts, "a")
    with pytest.raises(TypeError, match="a Plan is expected, not int"):
        zheng17.apply(5, counts)


def test_summaries_are_equal_by_their_bits(counts):
    assert zheng17.summarize(counts) == zheng17.summarize(counts.tocsc())
    assert zheng17.summarize(counts) != zheng17.summarize(counts[:-1])
    assert zheng17.summarize(counts) != 5
