"""The recipe on AnnData: every kind of X, what goes with it, what is untouched if it fails, and scanpy's answers."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
from compare import assert_close, assert_same, assert_same_components, full, names
from scipy import sparse

import zheng17
from zheng17 import _matrix, _zheng17

N = 100


def untidy(x):
    """The same matrix with every entry in two halves, rows in no order, and zeros that are stored."""
    x = x.tocoo()
    rows, columns = np.r_[x.row, x.row, x.row[:50]], np.r_[x.col, x.col, np.zeros(50, dtype=x.col.dtype)]
    values = np.r_[x.data / 2, x.data / 2, np.zeros(50)]
    order = np.random.default_rng(0).permutation(len(rows))
    order = order[np.argsort(rows[order], kind="stable")]
    indptr = np.searchsorted(rows[order], np.arange(x.shape[0] + 1))
    made = sparse.csr_matrix(x.shape, dtype=np.float32)
    made.data, made.indices, made.indptr = values[order].astype(np.float32), columns[order], indptr
    return made


def wide_indices(x):
    made = x.copy()
    made.indices, made.indptr = made.indices.astype(np.int64), made.indptr.astype(np.int64)
    return made


def with_room(x):
    """Arrays that are longer than the entries need."""
    made = x.copy()
    made.data, made.indices = (
        np.r_[made.data, np.full(9, np.nan, np.float32)],
        np.r_[made.indices, np.full(9, -1, np.int32)],
    )
    return made


KINDS = {
    "csr": lambda x: x,
    "csr_array": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "csc_array": sparse.csc_array,
    "dense": lambda x: x.toarray(),
    "fortran": lambda x: np.asfortranarray(x.toarray()),
    "strided": lambda x: np.repeat(x.toarray(), 2, axis=1)[:, ::2],
    "read_only": lambda x: np.frombuffer(x.toarray().tobytes(), dtype=x.dtype).reshape(x.shape),
    "unaligned": lambda x: np.frombuffer(b"." + x.toarray().tobytes(), x.dtype, offset=1).reshape(x.shape),
    "swapped": lambda x: x.toarray().astype(">f4"),
    "int64_indices": wide_indices,
    "room": with_room,
    "untidy": untidy,
    **{
        dtype: lambda x, dtype=dtype: x.astype(dtype)
        for dtype in ("float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    },
    "dense_float16": lambda x: x.toarray().astype(np.float16),
    "dense_longdouble": lambda x: x.toarray().astype(np.longdouble),
    "dense_int32": lambda x: x.toarray().astype(np.int32),
}


@pytest.fixture(scope="module")
def expected(counts):
    return zheng17.recipe_zheng17(anndata.AnnData(counts.copy()), n_top_genes=N, n_comps=5, copy=True)


def digests(adata) -> tuple:
    """What must have the same bits by every way."""
    x = np.ascontiguousarray(adata.X, dtype=np.float32)
    return adata.uns["zheng17"]["summary_sha256"], list(adata.var_names), x.tobytes(), adata.obsm["X_pca"].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_x_gives_the_same_bits(counts, expected, kind):
    adata = anndata.AnnData(KINDS[kind](counts.copy()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert zheng17.recipe_zheng17(adata, n_top_genes=N, n_comps=5) is None
    wide = kind in ("float64", "dense_longdouble")
    # In 64 bits the values are rounded twice on the way to 32.
    assert adata.X.dtype == (np.float64 if wide else np.float32)
    assert digests(adata)[:2] == digests(expected)[:2]
    if wide:
        assert_close(adata.X, expected.X, 1e-7)
    else:
        assert digests(adata) == digests(expected)


def test_coordinates_and_columns_as_a_layer(counts, expected):
    for kind in (sparse.coo_matrix, sparse.csc_matrix, sparse.lil_matrix):
        adata = anndata.AnnData(obs=pd.DataFrame(index=names("c", 600)), var=pd.DataFrame(index=names("g", 1200)))
        try:
            adata.layers["counts"] = kind(counts)
        except ValueError:
            # anndata takes no such layer.
            continue
        zheng17.recipe_zheng17(adata, n_top_genes=N, n_comps=5, layer="counts")
        assert digests(adata)[0] == digests(expected)[0]
        np.testing.assert_array_equal(adata.X, expected.X)
    source = _matrix.source(sparse.coo_matrix(counts))
    assert _zheng17.summarize(source).digest == digests(expected)[0]


def test_booleans_are_counts(counts):
    flags = counts > 0
    ours = zheng17.recipe_zheng17(anndata.AnnData(flags), n_top_genes=N, copy=True)
    as_numbers = zheng17.recipe_zheng17(anndata.AnnData(flags.astype(np.float32)), n_top_genes=N, copy=True)
    np.testing.assert_array_equal(ours.X, as_numbers.X)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("kind", ["csr", "csc", "dense", "float64"])
def test_a_backed_x_is_read_from_its_file(counts, expected, tmp_path, mode, kind):
    path = tmp_path / "counts.h5ad"
    full(KINDS[kind](counts)).write_h5ad(path)
    before = path.read_bytes()
    backed = anndata.read_h5ad(path, backed=mode)
    new = zheng17.recipe_zheng17(backed, n_top_genes=N, n_comps=5, copy=True)
    assert backed.isbacked
    assert not new.isbacked
    assert digests(new)[0] == digests(expected)[0]
    np.testing.assert_array_equal(new.X.astype(np.float32), expected.X)
    zheng17.recipe_zheng17(backed, n_top_genes=N)
    assert not backed.isbacked
    np.testing.assert_array_equal(backed.X, new.X)
    backed.file.close()
    # Opening a file for changes leaves a mark in it.
    assert mode == "r+" or path.read_bytes() == before
    assert_same(anndata.read_h5ad(path), full(KINDS[kind](counts)))


def test_what_was_changed_in_a_backed_file_is_seen(counts, tmp_path):
    path = tmp_path / "counts.h5ad"
    anndata.AnnData(counts.toarray()).write_h5ad(path)
    backed = anndata.read_h5ad(path, backed="r+")
    changed = counts.toarray()
    changed[5] *= 3
    backed.X[5] = changed[5]
    found = zheng17.recipe_zheng17(backed, n_top_genes=N, copy=True)
    wanted = zheng17.recipe_zheng17(anndata.AnnData(changed), n_top_genes=N, copy=True)
    np.testing.assert_array_equal(found.X, wanted.X)
    with pytest.raises(ValueError, match="view of a backed AnnData"):
        zheng17.recipe_zheng17(backed[:50], n_top_genes=N)


def test_what_goes_with_x_goes_with_the_result(counts, expected):
    adata = full(counts)
    before = adata.copy()
    zheng17.recipe_zheng17(adata, n_top_genes=N, n_comps=5)
    genes = [before.var_names.get_loc(name) for name in adata.var_names]
    np.testing.assert_array_equal(adata.X, expected.X)
    assert_same(adata.obs[["batch"]], before.obs)
    assert_same(adata.var[["chromosome"]], before.var.iloc[genes])
    assert_same(adata.uns["note"], before.uns["note"])
    assert_same(adata.obsm["place"], before.obsm["place"])
    assert_same(adata.obsp["near"], before.obsp["near"])
    assert_same(adata.varm["weights"], before.varm["weights"][genes])
    assert_same(adata.varp["pairs"], before.varp["pairs"][genes][:, genes])
    assert_same(adata.layers["counts"], before.layers["counts"][:, genes])
    assert_same(adata.raw.X, before.raw.X)
    assert list(adata.raw.var_names) == list(before.var_names)


def test_the_result_can_be_written_and_read(counts, tmp_path):
    adata = full(counts)
    zheng17.recipe_zheng17(adata, n_top_genes=N, n_comps=5)
    adata.write_h5ad(tmp_path / "result.h5ad")
    read = anndata.read_h5ad(tmp_path / "result.h5ad")
    np.testing.assert_array_equal(read.X, adata.X)
    assert read.uns["zheng17"]["version"] == "exact"
    assert read.uns["zheng17"]["parameters"]["n_top_genes"] == N


def test_a_copy_shares_nothing(counts):
    adata = full(counts)
    before = adata.copy()
    new = zheng17.recipe_zheng17(adata, n_top_genes=N, copy=True)
    assert_same(adata, before)
    for part in (new.obsm["place"], new.uns["note"]["list"], new.raw.X.data, new.obsp["near"].data):
        part[:] = 0
    new.obs["batch"] = "c"
    assert_same(adata, before)


def test_a_view_becomes_an_object_and_its_origin_stays(counts):
    origin = full(counts)
    before = origin.copy()
    view = origin[:300, 100:]
    alone = zheng17.recipe_zheng17(view.copy(), n_top_genes=N, copy=True)
    zheng17.recipe_zheng17(view, n_top_genes=N)
    assert_same(origin, before)
    assert not view.is_view
    assert_same(view, alone)


def test_a_layer_goes_to_x(counts, expected):
    adata = anndata.AnnData(sparse.csr_matrix(counts.shape, dtype=np.float32), layers={"counts": counts.copy()})
    zheng17.recipe_zheng17(adata, n_top_genes=N, layer="counts")
    np.testing.assert_array_equal(adata.X, expected.X)
    assert adata.layers["counts"].shape == adata.shape
    with pytest.raises(ValueError, match="there is no layer 'spliced'; there is counts"):
        zheng17.recipe_zheng17(adata, layer="spliced")
    nothing = anndata.AnnData(obs=pd.DataFrame(index=names("c", 3)), var=pd.DataFrame(index=names("g", 3)))
    with pytest.raises(ValueError, match="no X"):
        zheng17.recipe_zheng17(nothing)


class Broken(RuntimeError):
    """What a progress function raises."""


def raising(error):
    def progress(name, done, total):
        raise error

    return progress


@pytest.mark.parametrize("value", [np.nan, -2.0, np.inf, 2.0**60])
@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_what_is_no_count_is_named_and_nothing_touched(counts, value, kind):
    broken = counts.tolil()
    broken[400, 30] = value
    adata = full(KINDS[kind](broken.tocsr()))
    before = adata.copy()
    with pytest.raises(ValueError, match=r"X: .*cell 400 \(cell400\).*gene 30 \(gene30\); it is the only such value"):
        zheng17.recipe_zheng17(adata, n_top_genes=N)
    assert_same(adata, before)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_top_genes": 0}, ValueError, "n_top_genes must be 1 or more, not 0"),
        ({"n_top_genes": -5}, ValueError, "n_top_genes must be 1 or more, not -5"),
        ({"n_top_genes": "many"}, TypeError, "n_top_genes must be a whole number, not 'many'"),
        ({"n_top_genes": 2.5}, TypeError, "n_top_genes must be a whole number, not 2.5"),
        ({"n_comps": -1}, ValueError, "n_comps must be 1 or more, not -1"),
        ({"n_comps": "5"}, TypeError, "n_comps must be a whole number, not '5'"),
        ({"threads": 10_000}, ValueError, "^threads must be at most 1024, not 10000$"),
        ({"threads": -1}, ValueError, "threads must be 1 or more, not -1"),
        ({"log": "no"}, TypeError, "log must be True or False, not 'no'"),
        ({"version": 1.12}, TypeError, "version must be a string, not 1.12"),
        ({"backend": None}, TypeError, "backend must be a string, not None"),
        ({"progress": 1}, TypeError, "progress must be True, False, None or a function, not 1"),
        ({"n_comps": 0}, ValueError, "n_comps must be 1 or more, not 0"),
        ({"n_comps": 5000}, ValueError, "at most 99"),
        ({"version": "2.0"}, ValueError, "exact, scanpy-1.12"),
        ({"backend": "abacus"}, ValueError, "abacus"),
        ({"threads": 0}, ValueError, "threads must be 1 or more"),
        ({"progress": raising(Broken("no"))}, Broken, "no"),
        ({"progress": raising(KeyboardInterrupt())}, KeyboardInterrupt, ""),
        ({"progress": raising(SystemExit(3))}, SystemExit, ""),
    ],
    ids=str,
)
def test_an_object_is_untouched_if_anything_fails(counts, parameters, error, message):
    adata = full(counts)
    before = adata.copy()
    with pytest.raises(error, match=message):
        zheng17.recipe_zheng17(adata, **({"n_top_genes": N} | parameters))
    assert_same(adata, before)


def test_an_object_is_untouched_where_a_warning_is_an_error(counts):
    adata = full(counts)
    before = adata.copy()
    with warnings.catch_warnings(), pytest.raises(UserWarning, match="1200 genes asked for, .* have a defined score"):
        warnings.simplefilter("error", UserWarning)
        zheng17.recipe_zheng17(adata, n_top_genes=1200)
    assert_same(adata, before)


@pytest.mark.parametrize("dtype", [complex, object, "U3", "datetime64[s]"], ids=str)
def test_what_is_no_number_is_refused(dtype):
    adata = anndata.AnnData(obs=pd.DataFrame(index=names("c", 3)), var=pd.DataFrame(index=names("g", 2)))
    adata.layers["x"] = np.ones((3, 2)).astype(np.int64).astype(dtype)
    with pytest.raises(TypeError, match="layers.*counts are expected"):
        zheng17.recipe_zheng17(adata, layer="x")


def test_warnings_point_at_the_caller(counts):
    with pytest.warns(UserWarning, match="summed") as caught:
        zheng17.recipe_zheng17(anndata.AnnData(untidy(counts)), n_top_genes=N)
    assert caught[0].filename == __file__


def test_arrays_that_do_not_belong_together(counts):
    for change, message in (
        (lambda x: x.indices.__setitem__(5, 5000), "index|5000"),
        (lambda x: x.indices.__setitem__(5, -1), "negative"),
        (lambda x: x.indptr.__setitem__(0, 1), "start at 0"),
        (lambda x: x.indptr.__setitem__(10, 10**9), "indptr decreases"),
        (lambda x: x.indptr.__setitem__(10, -1), "indptr decreases"),
    ):
        x = counts.copy()
        adata = anndata.AnnData(x)
        change(adata.X)
        with pytest.raises(ValueError, match=message):
            zheng17.recipe_zheng17(adata, n_top_genes=N)
        assert adata.shape == counts.shape


@pytest.mark.parametrize("shape", [(0, 10), (1, 10), (10, 0), (10, 10)])
def test_too_little_to_work_with(shape):
    adata = anndata.AnnData(sparse.csr_matrix(shape, dtype=np.float32))
    with pytest.raises(ValueError, match="no cells|one cell|no genes|every count is 0"):
        zheng17.recipe_zheng17(adata)
    assert adata.shape == shape


@pytest.mark.scanpy
@pytest.mark.parametrize("log", [True, False])
def test_scanpys_own_recipe(counts, log):
    import scanpy as sc

    for dtype in (np.float32, np.int64):
        theirs, ours = anndata.AnnData(counts.astype(dtype)), anndata.AnnData(counts.astype(dtype))
        sc.pp.recipe_zheng17(theirs, n_top_genes=N, log=log)
        zheng17.recipe_zheng17(ours, n_top_genes=N, log=log, version="scanpy-1.12")
        assert list(ours.var_names) == list(theirs.var_names)
        assert_close(ours.X, theirs.X)
        for column in ("n_counts", "mean", "std"):
            assert_close(ours.var[column], theirs.var[column])
        # Releases up to 1.10 keep the totals themselves.
        over = 1 if theirs.obs["n_counts_all"].mean() < 10 else ours.uns["zheng17"]["target_sum"]
        assert_close(ours.obs["n_counts_all"] * over, theirs.obs["n_counts_all"])
        assert ("log1p" in ours.uns) == ("log1p" in theirs.uns) == log


@pytest.mark.scanpy
def test_scanpys_components(counts, expected):
    import scanpy as sc

    theirs = expected.copy()
    sc.pp.pca(theirs, n_comps=5)
    assert_close(expected.uns["pca"]["variance"], theirs.uns["pca"]["variance"])
    assert_same_components(expected.varm["PCs"], theirs.varm["PCs"], 1e-3)
    sc.pp.neighbors(expected.copy())


@pytest.mark.parametrize("name", ["ebi_read_10x", "heart_1k_v2", "sympathetic_loom"])
@pytest.mark.parametrize("version", ["exact", "scanpy-1.12", "scanpy-1.4", "scanpy-main"])
def test_right_answers_on_real_files(shared, name, version):
    adata = real(shared, name)
    for top in (200, 1000):
        found = zheng17.recipe_zheng17(adata, n_top_genes=top, version=version, copy=True)
        oracle = np.load(shared / "oracle" / f"{name}.top{top}.{version}.npz")
        assert found.uns["zheng17"]["version"] == version
        if version == "exact":
            assert list(found.var["place"]) == list(oracle["selected"])
            among_kept = np.isin(oracle["kept_genes"], oracle["selected"])
            assert_close(found.var["dispersions_norm"], oracle["dispersions_norm"][among_kept])
        else:
            assert list(found.var["place"]) == list(oracle["genes"])
            assert_close(found.X[oracle["rows"]], oracle["values"], 1e-3 if version == "scanpy-1.4" else 1e-5)


@pytest.mark.parametrize("kind", ["csr_array", "csc", "fortran", "int32", "float64", "untidy", "backed"])
def test_right_answers_through_every_kind_of_input(shared, kind, tmp_path):
    adata = real(shared, "ebi_read_10x")
    oracle = np.load(shared / "oracle" / "ebi_read_10x.top200.scanpy-1.12.npz")
    if kind == "backed":
        adata.write_h5ad(tmp_path / "counts.h5ad")
        adata = anndata.read_h5ad(tmp_path / "counts.h5ad", backed="r")
    else:
        adata.X = KINDS[kind](sparse.csr_matrix(adata.X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = zheng17.recipe_zheng17(adata, n_top_genes=200, version="scanpy-1.12", copy=True)
    assert list(found.var["place"]) == list(oracle["genes"])
    assert_close(found.X[oracle["rows"]], oracle["values"])


def real(shared, name: str):
    """A real file in memory, its genes numbered."""
    scanpy = pytest.importorskip("scanpy")
    data = shared / "data"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "ebi_read_10x":
            adata = anndata.read_h5ad(data / "ebi_read_10x.h5ad")
        elif name == "heart_1k_v2":
            adata = scanpy.read_10x_h5(data / "heart_1k_v2.10xv2.h5")
        else:
            import h5py

            with h5py.File(data / "sympathetic.loom") as file:
                adata = anndata.AnnData(sparse.csr_matrix(file["matrix"][:].T.astype(np.float32)))
        adata.var_names_make_unique()
    adata.var["place"] = np.arange(adata.n_vars)
    return adata


def test_threads_and_backends_make_no_difference(counts, expected):
    for threads in (1, 2, 3):
        for backend in ("rayon", "lazy", "serial"):
            found = zheng17.recipe_zheng17(
                anndata.AnnData(counts.copy()), n_top_genes=N, n_comps=5, threads=threads, backend=backend, copy=True
            )
            assert digests(found) == digests(expected)
            assert found.uns["zheng17"]["backend"] == backend


def test_progress_moves_forward_in_every_pass(counts):
    told: list[tuple[str, int, int]] = []
    zheng17.recipe_zheng17(
        anndata.AnnData(counts.copy()), n_top_genes=N, n_comps=5, progress=lambda *news: told.append(news)
    )
    assert told
    order = list(dict.fromkeys(name for name, _, _ in told))
    assert [name for name, _, _ in told] == sorted((name for name, _, _ in told), key=order.index)
    for name in order:
        passed = [(done, total) for other, done, total in told if other == name]
        assert passed == sorted(passed)
        assert passed[-1][0] == passed[-1][1]


def test_progress_true_shows_bars(counts, capsys):
    zheng17.recipe_zheng17(anndata.AnnData(counts.copy()), n_top_genes=N, progress=True)
    assert "cells" in capsys.readouterr().err


def test_what_is_optional_is_imported_when_asked_for():
    script = """
import sys, anndata, numpy as np, zheng17
already = set(sys.modules)
adata = anndata.AnnData(np.random.default_rng(0).poisson(1.0, (100, 500)).astype(np.float32))
zheng17.recipe_zheng17(adata, n_top_genes=50, n_comps=5)
print(sorted({"dask", "matplotlib", "scanpy", "tqdm"} & (set(sys.modules) - already)))
"""
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_plot_has_every_kept_gene_and_the_selected_in_black(counts, expected, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf()))
    adata = anndata.AnnData(counts.copy())
    zheng17.recipe_zheng17(adata, n_top_genes=N, plot=True)
    (figure,) = shown
    assert len(figure.axes) == 2
    for axes in figure.axes:
        assert axes.get_xscale() == axes.get_yscale() == "log"
        drawn = {points.get_label(): len(points.get_offsets()) for points in axes.collections}
        assert drawn == {"highly variable genes": N, "other genes": adata.uns["zheng17"]["n_kept_genes"] - N}
    plt.close(figure)


def test_a_plot_that_fails_leaves_the_object_alone(counts, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    adata = full(counts)
    before = adata.copy()
    with pytest.raises(ImportError, match="pip install matplotlib"):
        zheng17.recipe_zheng17(adata, n_top_genes=N, plot=True)
    assert_same(adata, before)


def test_the_log_says_what_computes_and_what_was_converted(counts, caplog):
    caplog.set_level(logging.INFO, logger="zheng17")
    zheng17.recipe_zheng17(anndata.AnnData(sparse.csc_matrix(counts)), n_top_genes=N)
    text = caplog.text
    assert "X is converted from CSC to CSR" in text
    assert "backend rayon" in text


def test_summaries_and_moments_can_be_pickled(counts):
    parts = [zheng17.summarize(counts[start : start + 200], start) for start in (0, 200, 400)]
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = [pickle.loads(pickle.dumps(part, protocol)) for part in parts]
        assert [part.digest for part in again] == [part.digest for part in parts]
    whole = zheng17.summarize(counts)
    assert zheng17.Summary.merge(again[::-1]).digest == whole.digest
    assert (whole.n_cells, whole.n_genes) == counts.shape
    np.testing.assert_array_equal(whole.gene_totals, counts.sum(axis=0).A1)
    np.testing.assert_array_equal(whole.cell_totals, counts.sum(axis=1).A1)
    with pytest.raises(ValueError, match=""):
        zheng17.Summary.from_bytes(whole.to_bytes()[:-3])


def test_other_threads_run_meanwhile(counts):
    source = _matrix.source(sparse.vstack([counts] * 50, format="csr"))
    ticks, over = [], threading.Event()

    def tick():
        while not over.is_set():
            ticks.append(None)
            time.sleep(0.0005)

    other = threading.Thread(target=tick)
    other.start()
    time.sleep(0.01)
    before = len(ticks)
    _zheng17.summarize(source)
    after = len(ticks)
    over.set()
    other.join()
    assert after - before > 3, "the interpreter was locked"


ENDLESS = """
import anndata, numpy as np, zheng17
from scipy import sparse
generator = np.random.default_rng(0)
some = sparse.csr_matrix(generator.poisson(generator.gamma(0.2, 0.3, 2_000), (2_000, 2_000)).astype(np.float32))
adata = anndata.AnnData(sparse.vstack([some] * 50, format="csr"))
print("ready", flush=True)
try:
    while True:
        zheng17.recipe_zheng17(adata, copy=True, threads=1, n_comps=50)
except KeyboardInterrupt:
    print("interrupted", adata.shape, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_ends_it():
    command = [sys.executable, "-W", "ignore", "-c", ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        taken = time.monotonic() - sent
    assert out == "interrupted (100000, 2000)\n", error
    assert taken < 5
