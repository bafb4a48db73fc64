"""Reads a file of the h5ad writer with anndata, scanpy and h5py, and stops where a value is not the one that was written."""

import sys
import tempfile
import warnings
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp

N_DENSE = 1009


def dense(rows, columns):
    return ((np.arange(rows * columns) % N_DENSE) / 8).astype(np.float32).reshape(rows, columns)


def sparse(rows, columns):
    i, j = np.indices((rows, columns))
    return np.where((i * 7 + j * 3) % 11 < 3, i + j / 4, 0).astype(np.float32)


def equal(found, wanted):
    found = found.toarray() if sp.issparse(found) else np.asarray(found)
    np.testing.assert_array_equal(found, wanted)


def round_trip(adata, path):
    """anndata writes what it read, and what it wrote is the same again; h5py opens the file to change it."""
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / "again.h5ad"
        adata.write_h5ad(again)
        other = anndata.read_h5ad(again)
        assert other.shape == adata.shape
        if adata.X is not None:
            equal(other.X, adata.X.toarray() if sp.issparse(adata.X) else adata.X)
        assert list(other.obs.columns) == list(adata.obs.columns)
    with h5py.File(path, "r+") as file:
        file.attrs["seen"] = True
        file["uns"].create_dataset("added", data=[1, 2, 3])
    assert anndata.read_h5ad(path).uns["added"].tolist() == [1, 2, 3]


def everything(path):
    adata = anndata.read_h5ad(path)
    assert adata.shape == (7, 5)
    obs = adata.obs
    rows = np.arange(7)
    assert obs.index.name == "barcode"
    assert list(obs.index) == [*(f"zelle-{i}" for i in range(5)), "Zürich μ 細胞", "zelle-0"]
    numbers = {
        "i8": (rows - 3).astype("i1"),
        "i16": (rows * 1000 - 3000).astype("i2"),
        "i32": (rows * 100_000 - 3).astype("i4"),
        "i64": (1 << 40) + rows,
        "u8": (249 + rows).astype("u1"),
        "u16": (65529 + rows).astype("u2"),
        "u32": (2**32 - 1 - rows).astype("u4"),
        "u64": np.uint64(2**64 - 1) - rows.astype("u8"),
        "f32": (rows / 4).astype("f4"),
        "f64": rows / 3,
        "flag": rows % 2 == 0,
        "per_cent": np.full(7, 0.5),
        "größe": np.full(7, 1.5),
    }
    for name, wanted in numbers.items():
        assert obs[name].dtype == wanted.dtype, name
        equal(obs[name], wanted)
    assert list(obs["text"]) == ["a", "", "ß", "a b", "x/y", "細胞", "a"]
    assert [None if pd.isna(x) else x for x in obs["gaps"]] == ["t0", None, "t2", "t0", None, "t2", "t0"]
    assert str(obs["nullable_int"].dtype) == "Int64"
    assert [None if pd.isna(x) else x for x in obs["nullable_int"]] == [0, 1, None, 3, 4, 5, 6]
    equal(obs["nullable_float"], [0, 1, np.nan, 3, 4, 5, 6])
    assert str(obs["nullable_bool"].dtype) == "boolean"
    assert [None if pd.isna(x) else x for x in obs["nullable_bool"]] == [False, False, None, False, True, True, True]
    assert obs["type"].cat.ordered and list(obs["type"].cat.categories) == ["T", "B", "NK"]
    assert [None if pd.isna(x) else x for x in obs["type"]] == ["T", "B", "NK", None, "NK", "B", "T"]
    assert not obs["cluster"].cat.ordered and list(obs["cluster"]) == [10, 20, 10, 20, 10, 20, 10]
    wanted_order = [*list(numbers)[:11], "text", "gaps", "nullable_int", "nullable_float", "nullable_bool"]
    assert list(obs.columns) == [*wanted_order, "type", "cluster", "per_cent", "größe"]
    assert list(adata.var.index) == [f"gene{i}" for i in range(5)] and adata.var.index.name is None
    assert list(adata.var["_index-1"]) == ["1", "2", "3", "4", "5"]

    assert adata.X.dtype == np.float32
    equal(adata.X, dense(7, 5))
    for layer in ["counts", "wide"]:
        assert isinstance(adata.layers[layer], sp.csr_matrix) and adata.layers[layer].dtype == np.float32
        equal(adata.layers[layer], sparse(7, 5))
    equal(adata.layers["dense"], dense(7, 5))
    equal(adata.obsm["X_pca"], dense(7, 3))
    equal(adata.varm["PCs"], np.arange(15.0).reshape(5, 3))

    assert dict(adata.uns["log1p"]) == {}
    uns = adata.uns["zheng17"]
    assert uns["text"] == "größe" and uns["empty"] == "" and isinstance(uns["text"], str)
    assert uns["yes"] == True and np.asarray(uns["yes"]).dtype == bool  # noqa: E712
    assert uns["count"] == 17 and uns["number"] == 0.1
    assert list(uns["warnings"]) == ["a", "ß"] and len(uns["no_texts"]) == 0
    equal(uns["flags"], [True, False])
    equal(uns["counts"], [1, 2])
    equal(uns["numbers"], [0.5, np.inf])
    assert len(uns["no_numbers"]) == 0
    assert dict(uns["deeper"]) == {"a_b": 2.0}
    round_trip(adata, path)


def big_csr(path):
    adata = anndata.read_h5ad(path)
    assert sp.issparse(adata.X) and adata.X.dtype == np.float32
    equal(adata.X, sparse(1234, 777))
    backed = anndata.read_h5ad(path, backed="r")
    equal(backed.X[100:103], sparse(1234, 777)[100:103])
    backed.file.close()
    round_trip(adata, path)


def big_dense(path):
    adata = anndata.read_h5ad(path)
    equal(adata.X, dense(1234, 777))
    backed = anndata.read_h5ad(path, backed="r")
    equal(backed.X[1200:1234], dense(1234, 777)[1200:])
    backed.file.close()
    round_trip(adata, path)


def embedding(path):
    import scanpy as sc

    adata = anndata.read_h5ad(path)
    assert adata.X is None and adata.shape == (60, 9)
    equal(adata.obsm["X_pca"], dense(60, 4))
    sc.pp.neighbors(adata, n_neighbors=5, use_rep="X_pca")
    assert adata.obsp["distances"].shape == (60, 60)
    round_trip(anndata.read_h5ad(path), path)


def shape(path, n_cells, n_genes):
    adata = anndata.read_h5ad(path)
    assert adata.shape == (int(n_cells), int(n_genes)) == adata.X.shape, (adata.shape, adata.X.shape)
    assert list(adata.obs.columns) == [] and list(adata.var.columns) == []


def wide(path, n_columns):
    obs = anndata.read_h5ad(path).obs
    assert list(obs.columns) == [f"column {at}" for at in range(int(n_columns))]
    equal(obs.to_numpy()[1], -np.arange(int(n_columns)))


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    warnings.simplefilter("ignore", FutureWarning)
    globals()[sys.argv[1]](*sys.argv[2:])
