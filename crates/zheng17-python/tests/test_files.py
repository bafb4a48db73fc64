"""From file to file: zheng17.run, plan and backends, with the same answers as from memory, and errors that name the file."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import anndata
import numpy as np
import pytest
from compare import names
from scipy import io, sparse

import zheng17
from zheng17._files import memory_bytes

N = 100


@pytest.fixture(scope="module")
def folder(counts, tmp_path_factory):
    """The same counts as several kinds of file."""
    folder = tmp_path_factory.mktemp("files")
    adata = named(counts)
    adata.write_h5ad(folder / "csr.h5ad", compression="gzip")
    anndata.AnnData(sparse.csc_matrix(counts), obs=adata.obs, var=adata.var).write_h5ad(folder / "csc.h5ad")
    anndata.AnnData(counts.toarray(), obs=adata.obs, var=adata.var).write_h5ad(folder / "dense.h5ad")
    empty = anndata.AnnData(sparse.csr_matrix(counts.shape, dtype=np.float32), obs=adata.obs, var=adata.var)
    empty.layers["counts"] = counts
    empty.write_h5ad(folder / "layer.h5ad")
    (folder / "mtx").mkdir()
    with gzip.open(folder / "mtx" / "matrix.mtx.gz", "wb") as file:
        io.mmwrite(file, sparse.coo_matrix(counts.T.astype(np.int64)))
    with gzip.open(folder / "mtx" / "barcodes.tsv.gz", "wt") as file:
        file.writelines(f"{name}\n" for name in adata.obs_names)
    with gzip.open(folder / "mtx" / "features.tsv.gz", "wt") as file:
        file.writelines(f"{name}\t{name}\tGene Expression\n" for name in adata.var_names)
    return folder


def named(counts) -> anndata.AnnData:
    adata = anndata.AnnData(counts)
    adata.obs_names, adata.var_names = names("cell", adata.n_obs), names("gene", adata.n_vars)
    return adata


@pytest.fixture(scope="module")
def expected(counts):
    return zheng17.recipe_zheng17(named(counts), n_top_genes=N, n_comps=5, copy=True)


@pytest.mark.parametrize("file", ["csr.h5ad", "csc.h5ad", "dense.h5ad", "layer.h5ad", "mtx"])
def test_a_file_gives_the_bits_that_memory_gives(folder, expected, tmp_path, file):
    layer = "counts" if file == "layer.h5ad" else None
    found = zheng17.run(folder / file, tmp_path / "out.h5ad", n_top_genes=N, n_comps=5, layer=layer)
    assert found["digest"] == expected.uns["zheng17"]["summary_sha256"]
    assert found["selected_names"] == list(expected.var_names)
    assert (found["n_cells"], found["n_genes"]) == (600, 1200)
    assert found["target_sum"] == expected.uns["zheng17"]["target_sum"]
    written = anndata.read_h5ad(tmp_path / "out.h5ad")
    np.testing.assert_array_equal(written.X, expected.X)
    np.testing.assert_array_equal(written.obsm["X_pca"], expected.obsm["X_pca"])
    np.testing.assert_array_equal(found["pca_variance_ratio"], expected.uns["pca"]["variance_ratio"])
    assert written.uns["zheng17"]["summary_sha256"] == found["digest"]


def test_neither_threads_nor_memory_nor_chunks_change_a_bit(folder, expected, tmp_path):
    for at, options in enumerate(
        [
            {"threads": 1},
            {"threads": 2, "backend": "rayon"},
            {"backend": "lazy", "memory": "1GiB"},
            {"backend": "lazy", "chunk_rows": 7},
            {"backend": "serial", "memory": 2**31},
        ]
    ):
        output = tmp_path / f"{at}.h5ad"
        found = zheng17.run(folder / "csr.h5ad", output, n_top_genes=N, **options)
        assert found["digest"] == expected.uns["zheng17"]["summary_sha256"]
        assert found["backend"] == options.get("backend", found["backend"])
        np.testing.assert_array_equal(anndata.read_h5ad(output).X, expected.X)


def test_paths_may_be_text_or_path(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path_in, path_out in (
        (str(folder / "csr.h5ad"), str(tmp_path / "1.h5ad")),
        (folder / "csr.h5ad", Path("2.h5ad")),
        (os.fspath(folder / "csr.h5ad"), "3.h5ad"),
    ):
        zheng17.run(path_in, path_out, n_top_genes=N)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.h5ad", "2.h5ad", "3.h5ad"]
    with pytest.raises(TypeError):
        zheng17.run(5, "4.h5ad")
    for name in ("größe ü.h5ad", "with space.h5ad"):
        (tmp_path / name).write_bytes((folder / "csr.h5ad").read_bytes())
        assert zheng17.plan(name)["n_cells"] == 600


def test_what_is_written(folder, tmp_path):
    lognorm = tmp_path / "lognorm.h5ad"
    table = tmp_path / "genes.tsv"
    zheng17.run(folder / "csr.h5ad", lognorm, n_top_genes=N, write_x="lognorm", gene_table=table)
    written = anndata.read_h5ad(lognorm)
    assert sparse.issparse(written.X)
    lines = table.read_text().splitlines()
    assert len(lines) == 1 + 1200
    zheng17.run(folder / "csr.h5ad", tmp_path / "none.h5ad", n_top_genes=N, write_x="none")
    assert anndata.read_h5ad(tmp_path / "none.h5ad").X is None
    clipped = tmp_path / "clipped.h5ad"
    zheng17.run(folder / "csr.h5ad", clipped, n_top_genes=N, max_value=1.5, log=False)
    assert np.abs(anndata.read_h5ad(clipped).X).max() == 1.5
    with pytest.raises(ValueError, match="there are scaled, lognorm and none"):
        zheng17.run(folder / "csr.h5ad", tmp_path / "x.h5ad", write_x="raw")


def test_an_output_is_replaced_only_by_force(folder, tmp_path):
    output = tmp_path / "out.h5ad"
    output.write_text("precious")
    with pytest.raises(FileExistsError, match="out.h5ad: the output exists already; force=True replaces it"):
        zheng17.run(folder / "csr.h5ad", output, n_top_genes=N)
    assert output.read_text() == "precious"
    zheng17.run(folder / "csr.h5ad", output, n_top_genes=N, force=True)
    assert anndata.read_h5ad(output).n_vars == N
    with pytest.raises(ValueError, match="csr.h5ad"):
        zheng17.run(folder / "csr.h5ad", folder / "csr.h5ad", n_top_genes=N, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.h5ad"]


def test_errors_name_the_file_and_leave_nothing(folder, counts, tmp_path):
    output = tmp_path / "out.h5ad"
    broken = counts.copy()
    broken.data[1000] = -3
    cell = int(np.searchsorted(broken.indptr, 1000, side="right")) - 1
    named(broken).write_h5ad(tmp_path / "broken.h5ad")
    (tmp_path / "text.h5ad").write_text("no counts")
    (tmp_path / "cut.h5ad").write_bytes((folder / "csr.h5ad").read_bytes()[:20_000])
    for file, error, message in (
        ("broken.h5ad", ValueError, rf"broken.h5ad.*cell {cell} \(cell{cell}\) has -3 for gene {broken.indices[1000]}"),
        ("text.h5ad", ValueError, "text.h5ad"),
        ("cut.h5ad", ValueError, "cut.h5ad"),
        ("absent.h5ad", FileNotFoundError, "absent.h5ad"),
    ):
        with pytest.raises(error, match=message):
            zheng17.run(tmp_path / file, output, n_top_genes=N)
        assert not output.exists()
    for options, message in (
        ({"layer": "spliced"}, "csr.h5ad.*spliced"),
        ({"raw": True}, "csr.h5ad"),
        ({"n_top_genes": 0}, "n_top_genes must be 1 or more"),
        ({"memory": "1 lot"}, "2GiB"),
        ({"memory": "1MiB"}, "memory|MiB|MB"),
        ({"chunk_rows": 0}, "chunk_rows"),
        ({"version": "none"}, "scanpy-1.12"),
        ({"n_comps": 10_000}, "principal components"),
    ):
        with pytest.raises((ValueError, MemoryError, OSError), match=message):
            zheng17.run(folder / "csr.h5ad", output, **({"n_top_genes": N} | options))
    with pytest.raises((OSError, ValueError), match="nowhere"):
        zheng17.run(folder / "csr.h5ad", tmp_path / "nowhere" / "out.h5ad", n_top_genes=N)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.h5ad", "cut.h5ad", "text.h5ad"]


def test_a_progress_that_raises_leaves_nothing(counts, tmp_path):
    def progress(name, done, total):
        raise KeyboardInterrupt

    # So many cells that it is not over before it is first asked.
    path = tmp_path / "counts.h5ad"
    named(sparse.vstack([counts] * 50, format="csr")).write_h5ad(path)
    with pytest.raises(KeyboardInterrupt):
        zheng17.run(path, tmp_path / "out.h5ad", n_top_genes=N, threads=1, progress=progress)
    assert list(tmp_path.iterdir()) == [path]


def test_progress_goes_to_the_end_of_every_pass(folder, tmp_path):
    told = []
    zheng17.run(folder / "csr.h5ad", tmp_path / "out.h5ad", n_top_genes=N, progress=lambda *news: told.append(news))
    last = {name: (done, total) for name, done, total in told}
    assert last
    assert all(done == total for done, total in last.values())


def test_a_plan_says_what_a_run_would_take(folder):
    plan = zheng17.plan(folder / "csr.h5ad", n_top_genes=N, n_comps=5, memory="2GiB", threads=2)
    assert (plan["n_cells"], plan["n_genes"]) == (600, 1200)
    assert plan["threads"] == 2
    assert 0 < plan["peak_bytes"] < 2 << 30
    assert plan["output_bytes"] >= 600 * N * 4
    assert plan["passes"]
    assert plan["backend_reason"]
    with pytest.raises(FileNotFoundError, match="absent.h5ad"):
        zheng17.plan(folder / "absent.h5ad")


def test_sizes():
    assert memory_bytes(None) is None
    assert memory_bytes(5) == 5
    for text, size in (("1000", 1000), ("2GiB", 2 << 30), ("1.5 MiB", 3 << 19), ("3kb", 3000), ("2 TB", 2 * 1000**4)):
        assert memory_bytes(text) == size
    for text in ("", "GiB", "-1GiB", "2 boxes"):
        with pytest.raises(ValueError, match="a size such as"):
            memory_bytes(text)


def test_backends_and_what_they_can_do():
    found = {backend["name"]: backend for backend in zheng17.backends()}
    assert {"rayon", "lazy", "serial"} <= set(found)
    assert found["lazy"]["beyond_memory"]
    assert not found["serial"]["threads"]
    with pytest.raises((OSError, ValueError), match="absent.so"):
        zheng17.load_plugin("absent.so")


EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("script", ["pbmc.py", "larger_than_memory.py"])
def test_examples_run(script, tmp_path):
    command = [sys.executable, "-W", "ignore", EXAMPLES / script]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "1000 genes" in run.stdout
