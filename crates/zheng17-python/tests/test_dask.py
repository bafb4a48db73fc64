"""The recipe on Dask: on this machine's schedulers and on real clusters of processes, with the bits of the recipe in
memory."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import anndata
import numpy as np
import pytest
from scipy import sparse

import zheng17

pytest.importorskip("distributed")
import cloudpickle
import dask
import dask.array as da
from dask.callbacks import Callback
from distributed import Client, LocalCluster

import zheng17.dask

# Workers can't import this file: what they need of it is sent to them.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

N_TOP = 200


def start_cluster(n_workers: int, **options) -> LocalCluster:
    return LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None, **options)


@pytest.fixture(scope="module")
def cluster():
    """Two workers, in processes of their own."""
    with start_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module", params=["synchronous", "threads", "processes", "cluster"])
def engine(request):
    """Every kind of scheduler, as Dask's default."""
    if request.param == "cluster":
        with start_cluster(2) as cluster, Client(cluster):
            yield request.param
    elif request.param == "processes":
        pool = ProcessPoolExecutor(2, mp_context=get_context("spawn"))
        with pool, dask.config.set(scheduler="processes", pool=pool):
            yield request.param
    else:
        with dask.config.set(scheduler=request.param):
            yield request.param


@pytest.fixture(scope="module")
def module_counts(request) -> sparse.csr_matrix:
    return request.getfixturevalue("counts")


@pytest.fixture(scope="module")
def in_memory(module_counts):
    """The recipe in memory, by parameters."""
    known = {}

    def recipe(matrix=None, **parameters):
        key = None if matrix is not None else tuple(sorted(parameters.items()))
        if key not in known or key is None:
            adata = anndata.AnnData(module_counts.copy() if matrix is None else matrix)
            zheng17.recipe_zheng17(adata, **{"n_top_genes": N_TOP} | parameters)
            known[key] = adata
        return known[key]

    return recipe


def lazy(matrix, chunks=100) -> da.Array:
    """A matrix in row chunks."""
    rows = chunks if isinstance(chunks, tuple) else (chunks,) * (matrix.shape[0] // chunks)
    rest = matrix.shape[0] - sum(rows)
    rows += (rest,) if rest else ()
    return da.from_array(matrix, chunks=(rows, matrix.shape[1]), asarray=False)


def on_dask(array, client=None, **parameters) -> anndata.AnnData:
    adata = anndata.AnnData(array)
    recipe = zheng17.recipe_zheng17 if client is None else zheng17.dask.recipe_zheng17
    parameters = {"n_top_genes": N_TOP} | parameters | ({} if client is None else {"client": client})
    recipe(adata, **parameters)
    return adata


def computed(array, client=None) -> np.ndarray:
    return array.compute() if client is None else client.compute(array).result()


def assert_same(adata, wanted, client=None):
    """Every bit of the result."""
    facts, wanted_facts = adata.uns["zheng17"], wanted.uns["zheng17"]
    for key in ("summary_sha256", "target_sum", "hvg_target_sum", "n_kept_genes", "version"):
        assert facts[key] == wanted_facts[key], key
    assert list(facts["warnings"]) == list(wanted_facts["warnings"])
    assert list(adata.var_names) == list(wanted.var_names)
    assert adata.obs.equals(wanted.obs)
    assert adata.var.equals(wanted.var)
    assert (adata.X.shape, adata.X.dtype) == (wanted.X.shape, wanted.X.dtype)
    assert isinstance(adata.X._meta, np.ndarray)
    x = computed(adata.X, client)
    assert x.dtype == wanted.X.dtype
    np.testing.assert_array_equal(x, wanted.X)


# --- the same bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [7, 100, (1, 299, 50, 250), 600], ids=str)
def test_any_chunks_by_any_scheduler(engine, module_counts, in_memory, chunks):
    assert_same(on_dask(lazy(module_counts, chunks)), in_memory())


def test_chunks_of_one_cell(module_counts):
    few = module_counts[:60]
    wanted = anndata.AnnData(few.copy())
    zheng17.recipe_zheng17(wanted, n_top_genes=50)
    with dask.config.set(scheduler="threads"):
        assert_same(on_dask(lazy(few, 1), n_top_genes=50), wanted)


@pytest.mark.parametrize("n_workers", [1, 3])
def test_any_number_of_workers(module_counts, in_memory, n_workers):
    with start_cluster(n_workers) as cluster, Client(cluster, set_as_default=False) as client:
        assert_same(on_dask(lazy(module_counts, 70), client), in_memory(), client)


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("version", ["exact", "scanpy-1.12", "scanpy-main"])
def test_versions(cluster, module_counts, in_memory, version, log):
    adata = on_dask(lazy(module_counts, 130), cluster, version=version, log=log)
    assert_same(adata, in_memory(version=version, log=log), cluster)


@pytest.mark.parametrize(
    "convert",
    [
        lambda counts: sparse.csr_array(counts),
        lambda counts: counts.toarray(),
        lambda counts: counts.astype(np.int64),
        lambda counts: counts.astype(np.float64),
        lambda counts: counts.toarray().astype(np.uint8),
    ],
    ids=["csr_array", "dense", "int64", "float64", "dense uint8"],
)
def test_kinds_of_chunks(cluster, module_counts, in_memory, convert):
    matrix = convert(module_counts)
    # Older AnnData takes no sparse arrays of its own, but Dask's.
    whole = sparse.csr_matrix(matrix) if isinstance(matrix, sparse.csr_array) else matrix
    assert_same(on_dask(lazy(matrix, 250), cluster), in_memory(whole), cluster)


def test_genes_of_fractional_totals_and_duplicates(cluster, module_counts, in_memory):
    counts = module_counts.tolil().astype(np.float64)
    counts[:, 5] = 0
    counts[:3, 5] = 0.25
    counts = counts.tocsr()
    twice = (np.append(counts.data, [1.0]), np.append(counts.indices, [3]), counts.indptr + (np.arange(601) == 600))
    counts = sparse.csr_matrix(twice, shape=counts.shape)
    assert_same(on_dask(lazy(counts, 90), cluster), in_memory(counts), cluster)


def test_components(engine, module_counts, in_memory):
    wanted = in_memory(n_comps=10)
    adata = on_dask(lazy(module_counts, 90), n_comps=10)
    assert isinstance(adata.obsm["X_pca"], da.Array)
    scores = adata.obsm["X_pca"].compute()
    np.testing.assert_allclose(scores, wanted.obsm["X_pca"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(adata.varm["PCs"], wanted.varm["PCs"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(adata.uns["pca"]["variance"], wanted.uns["pca"]["variance"], rtol=1e-6)
    # The same chunks have the same bits, by any scheduler.
    with dask.config.set(scheduler="synchronous"):
        again = on_dask(lazy(module_counts, 90), n_comps=10)
        np.testing.assert_array_equal(again.varm["PCs"], adata.varm["PCs"])
        np.testing.assert_array_equal(again.obsm["X_pca"].compute(), scores)


def test_layers_stay_lazy_and_the_object_is_untouched_by_copies(module_counts, in_memory):
    counts = lazy(module_counts)
    adata = anndata.AnnData(counts, layers={"counts": counts})
    with dask.config.set(scheduler="synchronous"):
        new = zheng17.recipe_zheng17(adata, n_top_genes=N_TOP, layer="counts", copy=True)
        assert_same(new, in_memory())
    assert adata.X is counts
    assert list(adata.obs) == list(adata.uns) == []
    assert isinstance(new.layers["counts"], da.Array)
    assert new.layers["counts"].shape == new.shape


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def file(module_counts, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("dask") / "counts.h5ad"
    adata = anndata.AnnData(module_counts)
    adata.obs_names = [f"cell-{at}" for at in range(600)]
    adata.var_names = [f"gene-{at}" for at in range(1200)]
    adata.var["biotype"] = "protein"
    adata.write_h5ad(path, compression="gzip")
    return path


@pytest.mark.parametrize("chunk_rows", [50, 1000])
def test_files_have_the_digest_of_the_program(cluster, file, in_memory, tmp_path, chunk_rows):
    found = zheng17.run(file, tmp_path / "result.h5ad", n_top_genes=N_TOP)
    wanted = anndata.read_h5ad(tmp_path / "result.h5ad")
    adata = zheng17.dask.read(file, chunk_rows=chunk_rows)
    assert sum(adata.X.chunks[0]) == 600
    zheng17.dask.recipe_zheng17(adata, n_top_genes=N_TOP, client=cluster)
    assert adata.uns["zheng17"]["summary_sha256"] == found["digest"]
    assert list(adata.var_names) == found["selected_names"] == list(wanted.var_names)
    assert list(adata.var["biotype"]) == ["protein"] * N_TOP
    np.testing.assert_array_equal(computed(adata.X, cluster), wanted.X)


def test_a_file_in_chunks_is_an_ordinary_array(file, module_counts):
    x = zheng17.dask.read(file, chunk_rows=70).X
    assert sparse.issparse(x._meta)
    with dask.config.set(scheduler="threads"):
        assert (x[100:200].compute() != module_counts[100:200]).nnz == 0
        row_sums = np.asarray(
            x.map_blocks(lambda block: np.asarray(block.sum(1)), dtype=x.dtype, chunks=(x.chunks[0], (1,)))
        )
        np.testing.assert_array_equal(row_sums.ravel(), np.asarray(module_counts.sum(1)).ravel())
        # What is not the file as it is, is read as any other array.
        adata = anndata.AnnData(x[:300])
        wanted = anndata.AnnData(module_counts[:300])
        for each in (adata, wanted):
            zheng17.recipe_zheng17(each, n_top_genes=50)
        assert_same(adata, wanted)


def test_real_files(shared, cluster, tmp_path):
    for name in ("heart_1k_v2.10xv2.h5", "pbmc_1k_citeseq.10xv3.h5"):
        path = shared / "data" / name
        found = zheng17.run(path, tmp_path / "result.h5ad", force=True)
        adata = zheng17.dask.read(path, chunk_rows=333)
        zheng17.dask.recipe_zheng17(adata, client=cluster)
        assert adata.uns["zheng17"]["summary_sha256"] == found["digest"]
        assert list(adata.var_names) == found["selected_names"]
        np.testing.assert_array_equal(computed(adata.X, cluster), anndata.read_h5ad(tmp_path / "result.h5ad").X)


def test_a_file_that_is_in_memory_is_not_read_again(file, in_memory, tmp_path):
    path = tmp_path / "counts.h5ad"
    path.write_bytes(file.read_bytes())
    with dask.config.set(scheduler="synchronous"):
        x = zheng17.dask.read(path, chunk_rows=250).X.persist()
        path.unlink()
        zheng17.dask._open.cache_clear()
        assert_same(on_dask(x), in_memory())


def test_a_file_that_changed_is_not_read(file, tmp_path):
    path = tmp_path / "counts.h5ad"
    path.write_bytes(file.read_bytes())
    adata = zheng17.dask.read(path)
    os.utime(path, (1, 1))
    zheng17.dask._open.cache_clear()
    with dask.config.set(scheduler="synchronous"), pytest.raises(ValueError, match="is not the file any more"):
        zheng17.recipe_zheng17(adata, n_top_genes=N_TOP)


def test_what_tasks_know_of_files_is_names_and_numbers(file):
    adata = zheng17.dask.read(file, chunk_rows=50)
    with dask.config.set(scheduler="synchronous"):
        zheng17.recipe_zheng17(adata, n_top_genes=N_TOP)
    graph = dict(adata.X.__dask_optimize__(adata.X.dask, adata.X.__dask_keys__()))
    sizes = [len(cloudpickle.dumps(task)) for task in graph.values()]
    assert len(sizes) <= 3 * 12
    # Three numbers for each selected gene, and little else.
    assert max(sizes) < 3 * 8 * N_TOP + 4000


def test_lazy_reading_by_anndata(file, in_memory):
    import h5py

    experimental = pytest.importorskip("anndata.experimental")
    if not hasattr(experimental, "read_elem_lazy") and not hasattr(experimental, "read_elem_as_dask"):
        pytest.skip("this anndata has no lazy elements")
    read = getattr(experimental, "read_elem_lazy", None) or experimental.read_elem_as_dask
    with h5py.File(file) as stored, dask.config.set(scheduler="synchronous"):
        x = read(stored["X"], chunks=(150, 1200))
        assert_same(on_dask(x), in_memory())


def test_lazy_objects_of_anndata(file, in_memory):
    experimental = pytest.importorskip("anndata.experimental")
    pytest.importorskip("xarray")
    if not hasattr(experimental, "read_lazy"):
        pytest.skip("this anndata has no lazy objects")
    with dask.config.set(scheduler="synchronous"):
        adata = experimental.read_lazy(file)
        zheng17.recipe_zheng17(adata, n_top_genes=N_TOP)
        np.testing.assert_array_equal(adata.X.compute(), in_memory().X)
        assert adata.var["biotype"].iloc[0] == "protein"


# --- what is computed, and when ---------------------------------------------------------------------------------------


class Tasks(Callback):
    """Names of the tasks that a scheduler of this machine runs."""

    def __init__(self):
        self.names: list[str] = []

    def _pretask(self, key, dask, state):
        name = key[0] if isinstance(key, tuple) else key
        self.names.append("-".join(name.split("-")[:-1]) if name.startswith("zheng17") else "other")


def tasks_of(work) -> list[str]:
    with dask.config.set(scheduler="synchronous"), Tasks() as tasks:
        work()
    return tasks.names


def test_nothing_but_reductions_is_computed_before_it_is_asked_for(module_counts):
    adata = anndata.AnnData(lazy(module_counts, 50))
    names = tasks_of(lambda: zheng17.recipe_zheng17(adata, n_top_genes=N_TOP, n_comps=5))
    ours = {name for name in names if name != "other"}
    assert ours <= {
        f"zheng17-{what}{merge}"
        for what in ("totals", "selected", "deviations", "products")
        for merge in ("", "-merge")
    } | {"zheng17-select"}
    assert not any("scale" in name or "scores" in name for name in names)
    assert any("scale" in name for name in tasks_of(adata.X.compute))


def test_tasks_grow_with_chunks_and_no_faster(module_counts):
    def n_tasks(rows):
        x = lazy(module_counts, rows)
        return len(tasks_of(lambda: on_dask(x).X.compute())), len(x.chunks[0])

    few, few_chunks = n_tasks(60)
    many, many_chunks = n_tasks(10)
    assert many <= few * many_chunks / few_chunks * 1.1
    # Three reductions and the result, each with two tasks a chunk at most, and merges.
    assert many <= many_chunks * (3 * 2 + 3) * 8 / 7 + 10


def counted_blocks(counts, folder: Path, rows: int, seconds: float = 0.0) -> da.Array:
    """Chunks that leave a file each time they are made."""

    def make(block_info=None):
        first, end = block_info[None]["array-location"][0]
        time.sleep(seconds)
        (folder / f"{first}-{time.monotonic_ns()}").touch()
        return counts[first:end]

    sizes = (rows,) * (counts.shape[0] // rows)
    return da.map_blocks(make, chunks=(sizes, (counts.shape[1],)), dtype=counts.dtype, meta=counts[:0])


@pytest.mark.parametrize(("keep", "reads", "reads_of_x"), [(True, 2, 0), (False, 3, 1), (None, 3, 1)])
def test_how_often_the_matrix_is_made(module_counts, tmp_path, keep, reads, reads_of_x):
    adata = anndata.AnnData(counted_blocks(module_counts, tmp_path, 100))
    with dask.config.set(scheduler="synchronous"):
        zheng17.dask.recipe_zheng17(adata, n_top_genes=N_TOP, keep=keep)
        assert len(list(tmp_path.iterdir())) == reads * 6
        adata.X.compute()
        assert len(list(tmp_path.iterdir())) == (reads + reads_of_x) * 6


def test_a_cluster_keeps_the_selected_genes(cluster, module_counts, tmp_path):
    adata = anndata.AnnData(counted_blocks(module_counts, tmp_path, 100))
    zheng17.dask.recipe_zheng17(adata, n_top_genes=N_TOP, n_comps=5, client=cluster)
    computed(adata.X, cluster)
    assert len(list(tmp_path.iterdir())) == 2 * 6


def test_no_summary_stays_on_the_cluster(cluster, module_counts):
    adata = on_dask(lazy(module_counts, 40), cluster)

    def keys():
        return cluster.run_on_scheduler(lambda dask_scheduler: sorted(str(key) for key in dask_scheduler.tasks))

    def wait_for(condition):
        end = time.monotonic() + 10
        while not condition(keys()):
            assert time.monotonic() < end, keys()
            time.sleep(0.05)

    wait_for(lambda found: not any("zheng17" in key and "zheng17-select-" not in key for key in found))
    # Some versions of Dask have two keys for a task that does what two did.
    assert sum("zheng17-select-" in key for key in keys()) in (15, 30)
    del adata
    wait_for(lambda found: not any("zheng17" in key for key in found))


@pytest.mark.parametrize("keep", [True, False])
def test_a_column_of_the_result_is_computed_alone(module_counts, in_memory, monkeypatch, keep):
    sizes = []
    original = zheng17._chunks.ChunkPlan.apply

    def apply(plan, cells, *arguments, **keywords):
        sizes.append(cells.shape)
        return original(plan, cells, *arguments, **keywords)

    with dask.config.set(scheduler="synchronous"):
        adata = anndata.AnnData(lazy(module_counts, 100))
        zheng17.dask.recipe_zheng17(adata, n_top_genes=N_TOP, keep=keep)
        monkeypatch.setattr(zheng17._chunks.ChunkPlan, "apply", apply)
        wanted = in_memory()
        gene = adata.var_names[17]
        np.testing.assert_array_equal(adata[:, gene].X.compute(), wanted[:, gene].X)
        np.testing.assert_array_equal(adata.X[:, 3].compute(), wanted.X[:, 3])
        assert set(sizes) == {(100, 1)}
        assert len(sizes) == 12
        np.testing.assert_array_equal(adata.X[150:260, 5:60:2].compute(), wanted.X[150:260, 5:60:2])
        np.testing.assert_array_equal(adata.X[::7, ::-1].compute(), wanted.X[::7, ::-1])
        np.testing.assert_array_equal(adata.X[5, [4, 2, 2]].compute(), wanted.X[5, [4, 2, 2]])
        np.testing.assert_array_equal(adata.X[:, [9, 1]].compute(), wanted.X[:, [9, 1]])


# --- what is refused, and what is said --------------------------------------------------------------------------------


def test_chunks_of_genes_are_put_together_with_a_message(module_counts, in_memory, caplog):
    for matrix in (module_counts, module_counts.toarray(), sparse.csr_array(module_counts)):
        x = da.from_array(matrix, chunks=(250, 500), asarray=False)
        with dask.config.set(scheduler="synchronous"), caplog.at_level(logging.INFO, "zheng17"):
            assert_same(on_dask(x), in_memory())
        assert "X: 3 chunks of genes are put together" in caplog.text
        caplog.clear()


def test_chunks_of_genes_that_are_too_many_or_too_large_are_refused(cluster):
    many = da.zeros((10, 1001), chunks=(5, 1))
    with pytest.raises(
        ValueError, match=r"X has 1001 chunks of genes, at most 1000 .* 2002 tasks; make it with .*chunks=\(5, -1\)"
    ):
        on_dask(many)
    large = da.zeros((200_000, 30_000), chunks=(200_000, 10_000))
    with pytest.raises(
        ValueError, match=r"200000 cells x 30000 genes take about 44\.70 GiB, more than a quarter of the .* GiB"
    ):
        on_dask(large, cluster)


def test_chunks_of_unknown_size_are_refused(module_counts):
    x = lazy(module_counts.toarray())
    with pytest.raises(ValueError, match="chunks of known size"):
        zheng17.dask._row_chunks(x[x[:, 0] > 0], "X", zheng17.dask._Engine(None))


def test_sums_in_cell_order_are_refused_before_anything_is_computed(module_counts, tmp_path):
    adata = anndata.AnnData(counted_blocks(module_counts, tmp_path, 100))
    with pytest.raises(NotImplementedError, match="scanpy-1.4 sums in cell order"):
        zheng17.recipe_zheng17(adata, version="scanpy-1.4")
    with pytest.raises(ValueError, match="n_top_genes must be 1 or more"):
        zheng17.recipe_zheng17(adata, n_top_genes=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("parameters", [{"backend": "serial"}, {"threads": 2}, {"progress": True}])
def test_parameters_for_matrices_in_memory_are_refused(module_counts, parameters):
    with pytest.raises(ValueError, match="Dask"):
        zheng17.recipe_zheng17(anndata.AnnData(lazy(module_counts)), **parameters)


def test_matrices_in_memory_are_not_for_dask(module_counts):
    with pytest.raises(TypeError, match="a Dask array is expected, not csr_matrix"):
        zheng17.dask.recipe_zheng17(anndata.AnnData(module_counts))


def test_too_many_components_are_refused_and_the_object_is_as_it_was(module_counts):
    x = lazy(module_counts)
    adata = anndata.AnnData(x)
    with dask.config.set(scheduler="synchronous"), pytest.raises(ValueError, match="at most 29"):
        zheng17.recipe_zheng17(adata, n_top_genes=30, n_comps=30)
    assert adata.X is x
    assert list(adata.obs) == list(adata.var) == list(adata.uns) == []


def test_a_wrong_value_is_named_by_cell_and_gene(engine, module_counts):
    broken = module_counts.copy()
    broken.data[broken.indptr[321]] = np.nan
    gene = broken.indices[broken.indptr[321]]
    x = lazy(broken, 100)
    adata = anndata.AnnData(x)
    adata.obs_names = [f"AAAC-{at}" for at in range(600)]
    adata.var_names = [f"GENE{at}" for at in range(1200)]
    wanted = (
        rf"X: counts must be finite.* cell 321 \(AAAC-321\) has NaN for gene {gene} \(GENE{gene}\).* cells 300\.\.400"
    )
    with pytest.raises(ValueError, match=wanted):
        zheng17.recipe_zheng17(adata, n_top_genes=N_TOP)
    assert adata.X is x
    assert adata.shape == (600, 1200)


def test_a_wrong_value_in_a_file_is_named_too(cluster, module_counts, tmp_path):
    broken = module_counts.copy()
    broken.data[broken.indptr[555]] = -1
    adata = anndata.AnnData(broken)
    adata.obs_names = [f"AAAC-{at}" for at in range(600)]
    adata.write_h5ad(tmp_path / "broken.h5ad")
    with pytest.raises(ValueError, match=r"broken\.h5ad.* cell 555 \(AAAC-555\) has -1 for gene \d+ \(\d+\)"):
        zheng17.dask.recipe_zheng17(zheng17.dask.read(tmp_path / "broken.h5ad", chunk_rows=100), client=cluster)


def test_arrays_of_query_planning_are_refused():
    script = """
import dask
dask.config.set({"array.query-planning": True})
import anndata, dask.array as da, zheng17
if hasattr(da.zeros((2, 2)), "to_delayed"):
    print("query-planning")
else:
    try:
        zheng17.recipe_zheng17(anndata.AnnData(da.zeros((20, 30), chunks=(10, 30))))
    except NotImplementedError as error:
        print(error)
"""
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert "query-planning" in found.stdout


def test_without_dask_all_else_works():
    script = """
import sys
sys.modules["dask"] = None
import anndata, numpy as np, zheng17
adata = anndata.AnnData(np.random.default_rng(0).poisson(1.0, (50, 80)).astype("f4"))
zheng17.recipe_zheng17(adata, n_top_genes=20)
try:
    import zheng17.dask
except ImportError as error:
    print(adata.shape, error)
"""
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip().startswith("(50, 20) zheng17.dask needs Dask: pip install \"")
    assert "zheng17-python[dask]" in found.stdout


# --- workers ----------------------------------------------------------------------------------------------------------


def pids(client) -> dict:
    return client.run(os.getpid)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_a_killed_worker_changes_nothing(module_counts, in_memory, tmp_path):
    with start_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        before = set(pids(client).values())
        victim = min(before)

        def murder():
            end = time.monotonic() + 20
            while len(list(tmp_path.iterdir())) < 10 and time.monotonic() < end:
                time.sleep(0.01)
            kill(victim)

        x = counted_blocks(module_counts, tmp_path, 20, seconds=0.03)
        murderer = threading.Thread(target=murder)
        murderer.start()
        adata = on_dask(x, client)
        murderer.join()
        # Each chunk was made twice, and some once more.
        assert len(list(tmp_path.iterdir())) > 2 * 30
        assert_same(adata, in_memory(), client)
        # What workers kept is made again, too.
        client.wait_for_workers(2)
        after = set(pids(client).values())
        assert victim not in after
        kill(min(after))
        np.testing.assert_array_equal(computed(adata.X, client), in_memory().X)


def test_little_memory_spills_and_nothing_is_left(tmp_path):
    n_cells, n_genes, rows = 12_000, 1500, 1000

    def make(block_info=None):
        first, end = block_info[None]["array-location"][0]
        most = np.random.default_rng(0).gamma(0.5, 2.0, n_genes).astype(np.float32)
        random = np.random.default_rng(first).random((end - first, n_genes), dtype=np.float32)
        return sparse.csr_matrix(np.floor(random * random * most * 3))

    sizes = (rows,) * (n_cells // rows)
    x = da.map_blocks(
        make, chunks=(sizes, (n_genes,)), dtype=np.float32, meta=sparse.csr_matrix((0, n_genes), dtype=np.float32)
    )
    with dask.config.set(scheduler="threads"):
        wanted = on_dask(x, n_top_genes=1000).uns["zheng17"]["summary_sha256"]
    # What is managed may take 6 MB: less than two chunks of selected genes.
    limits = {"distributed.worker.memory.target": 0.01, "distributed.worker.memory.spill": 0.9}
    with dask.config.set(limits), start_cluster(2, memory_limit="600MB", local_directory=tmp_path) as cluster:
        with Client(cluster, set_as_default=False) as client:
            adata = on_dask(x, client, n_top_genes=1000)
            assert adata.uns["zheng17"]["summary_sha256"] == wanted
            spilled = client.run(lambda dask_worker: dask_worker.data.spilled_total.disk)
            assert sum(spilled.values()) > 10_000_000
            assert any(path.is_file() and path.stat().st_size > 100_000 for path in tmp_path.rglob("*"))
            x = client.compute(da.stack([adata.X.sum(), (adata.X**2).sum()])).result()
            n_varying = (adata.var["std"] > 0).sum()
            np.testing.assert_allclose(x, [0, (n_cells - 1) * n_varying], atol=20, rtol=1e-4)
    # But the locks of Dask itself.
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def n_threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_workers_keep_to_their_threads(module_counts, in_memory):
    large = sparse.vstack([module_counts] * 40, format="csr")
    with start_cluster(1) as cluster, Client(cluster, set_as_default=False) as client:
        (pid,) = pids(client).values()
        # Dask's own threads have started after this: what moves large chunks has one.
        client.compute(lazy(large, 6000).map_blocks(lambda block: block[:, :300].toarray(), dtype=np.float32)).result()
        before = n_threads(pid)
        most = 0
        stop = threading.Event()

        def watch():
            nonlocal most
            while not stop.is_set():
                most = max(most, n_threads(pid))
                time.sleep(0.001)

        watcher = threading.Thread(target=watch)
        watcher.start()
        computed(on_dask(lazy(large, 6000), client, n_comps=5).X, client)
        stop.set()
        watcher.join()
        assert 0 < most <= before


def test_the_example_runs(tmp_path):
    example = Path(__file__).parents[1] / "examples/dask_cluster.py"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "in: 20000 cells x 3000 genes, 10 chunks" in run.stdout
    assert "components: (20000, 20)" in run.stdout
