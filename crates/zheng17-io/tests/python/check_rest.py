"""Makes an AnnData file with something in every place, and compares what an output took over from its input."""

import sys
import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp

N_CELLS, N_GENES, N_RAW = 61, 43, 50


def make(path):
    random = np.random.default_rng(5)
    counts = sp.random(N_CELLS, N_RAW, 0.3, format="csr", random_state=5, data_rvs=lambda n: 1.0 + random.poisson(3, n))
    counts = counts.astype(np.float32)
    names = [f"c{i}" for i in range(N_CELLS)]
    raw = anndata.AnnData(
        counts,
        obs=pd.DataFrame(index=names),
        var=pd.DataFrame(
            {"kind": pd.Categorical(["a", "b"] * 25), "n": np.arange(50), "maybe": pd.array([1, None] * 25, dtype="Int64")},
            index=[f"g{i}" for i in range(N_RAW)],
        ),
    )
    raw.varm["of_raw"] = random.normal(size=(N_RAW, 2))
    adata = raw[:, :N_GENES].copy()
    adata.raw = raw
    x = adata.X
    adata.layers["counts"] = x.astype(np.int64)
    adata.layers["by_genes"] = sp.csc_matrix(x)
    adata.layers["dense"] = x.toarray().astype(np.float64)
    adata.layers["dense_half"] = x.toarray().astype(np.float16)
    adata.layers["flags"] = x.toarray() > 0
    adata.obs["type"] = pd.Categorical(random.choice(["T", "B"], N_CELLS))
    adata.obsm["X_umap"] = random.normal(size=(N_CELLS, 2)).astype(np.float32)
    adata.obsm["cube"] = random.normal(size=(N_CELLS, 3, 2))
    adata.obsm["sparse"] = sp.random(N_CELLS, 7, 0.4, format="csr", random_state=1)
    adata.obsm["frame"] = pd.DataFrame(
        {"x": random.normal(size=N_CELLS), "k": pd.Categorical(random.choice(["u", "v"], N_CELLS))}, index=names
    )
    adata.obsp["connectivities"] = sp.random(N_CELLS, N_CELLS, 0.2, format="csr", random_state=2)
    adata.obsp["distances"] = random.normal(size=(N_CELLS, N_CELLS))
    adata.varm["PCs"] = random.normal(size=(N_GENES, 4))
    adata.varp["correlations"] = random.normal(size=(N_GENES, N_GENES)).astype(np.float32)
    adata.varp["graph"] = sp.random(N_GENES, N_GENES, 0.2, format="csc", random_state=3)
    adata.uns["log1p"] = {"base": 2.0}
    adata.uns["type_colors"] = np.array(["#ff0000", "#00ff00"], dtype=object)
    adata.uns["neighbors"] = {"params": {"n": 15, "method": "umap", "metric_kwds": {}, "none": None, "yes": True, "x": 0.5}}
    adata.uns["numbers"] = np.arange(6, dtype=np.uint16).reshape(2, 3)
    adata.uns["single"] = np.float32(0.25)
    adata.uns["flags"] = np.array([True, False])
    adata.uns["table"] = pd.DataFrame({"a": [1, 2], "b": ["x", "ß"]})
    adata.uns["sparse"] = sp.csr_matrix(np.eye(3))
    adata.uns["texts"] = "größe"
    adata.uns["table_of_texts"] = np.array([["a", "b"], ["c", "d"]], dtype=object)
    adata.uns["ranking"] = np.array([("g1", 0.5, 3), ("gene zwei", 1.5, 4)], dtype=[("name", "O"), ("score", "f4"), ("n", "i8")])
    adata.write_h5ad(path, compression="gzip")
    with h5py.File(path, "r+") as file:
        file["raw/X"].attrs["a_list"] = np.array([1.5, 2.5])
        file["raw/X"].attrs["flags"] = np.array([True, False])


def make_damaged(path):
    """Like the other, with faults that show only after a part was copied."""
    make(path)
    with h5py.File(path, "r+") as file:
        file["layers/by_genes/indices"][-1] = N_CELLS
        file["layers/counts/indptr"][3] = 0
        file["raw/var"]["places"] = np.array([file.ref] * N_RAW, dtype=h5py.ref_dtype)
        odd = file["uns"].create_group("odd")
        odd.attrs["encoding-type"] = "something new"
        odd["a"] = [1, 2, 3]
        odd["b"] = np.array([file.ref], dtype=h5py.ref_dtype)
        file["obsm/short"] = np.zeros((N_CELLS - 1, 2))


def check_damaged(before, after):
    del before
    found = anndata.read_h5ad(after)
    assert set(members(found, "layers")) == {"dense", "dense_half", "flags"}
    assert found.raw is None and "odd" not in found.uns and "neighbors" in found.uns
    assert "short" not in found.obsm
    # What the writer had already was not replaced.
    np.testing.assert_array_equal(found.obsm["X_umap"], np.zeros((N_CELLS, 2)))
    assert found.uns["texts"] == "ours"
    with h5py.File(after) as file:
        everything = []
        file.visit(everything.append)
        assert not any(name.startswith(("raw", "layers/counts", "layers/by_genes", "uns/odd")) for name in everything)


def members(adata, part):
    # Since anndata 0.13 the layer None is X.
    return {key: value for key, value in getattr(adata, part).items() if key is not None}


def same(found, wanted, place):
    if wanted is None:
        assert found is None, place
    elif isinstance(wanted, pd.DataFrame):
        # anndata drops categories that nothing has any more.
        used = [
            frame.assign(**{name: frame[name].cat.remove_unused_categories() for name in frame if hasattr(frame[name], "cat")})
            for frame in (found, wanted)
        ]
        pd.testing.assert_frame_equal(*used, obj=place)
    elif sp.issparse(wanted):
        assert found.format == wanted.format and found.dtype == wanted.dtype, place
        np.testing.assert_array_equal(found.toarray(), wanted.toarray(), err_msg=place)
    elif hasattr(wanted, "keys"):
        assert set(found) == set(wanted), (place, set(found) ^ set(wanted))
        for key in wanted:
            same(found[key], wanted[key], f"{place}/{key}")
    elif isinstance(wanted, np.ndarray) and wanted.dtype.names:
        assert found.dtype.names == wanted.dtype.names, place
        for name in wanted.dtype.names:
            assert list(found[name]) == list(wanted[name]), f"{place}/{name}"
    else:
        wanted, found = np.asarray(wanted), np.asarray(found)
        assert found.dtype.kind == wanted.dtype.kind or {found.dtype.kind, wanted.dtype.kind} <= set("OTU"), place
        np.testing.assert_array_equal(found, wanted, err_msg=place)


def same_bytes(a, b):
    """Two HDF5 groups hold the same datasets and attributes."""
    assert set(a) == set(b), (a.name, set(a) ^ set(b))
    assert_same_attributes(a, b)
    for name in a:
        if isinstance(a[name], h5py.Group):
            same_bytes(a[name], b[name])
        else:
            x, y = a[name], b[name]
            assert x.dtype == y.dtype and x.shape == y.shape, x.name
            assert x[()].tobytes() == y[()].tobytes() if x.dtype != object else list(x[()]) == list(y[()]), x.name
            assert_same_attributes(x, y)


def assert_same_attributes(a, b):
    assert set(a.attrs) == set(b.attrs), (a.name, set(a.attrs) ^ set(b.attrs))
    for name in a.attrs:
        np.testing.assert_array_equal(a.attrs[name], b.attrs[name], err_msg=f"{a.name}@{name}")


def kept_of(adata, every_cell, every_gene):
    return adata[:: int(every_cell), :: int(every_gene)].copy()


def check(before, after, every_cell, every_gene):
    wanted, found = kept_of(anndata.read_h5ad(before), every_cell, every_gene), anndata.read_h5ad(after)
    del wanted.obsm["cube"], wanted.varm["PCs"]
    for part in ["layers", "obsm", "obsp", "varm", "varp"]:
        same(members(found, part), members(wanted, part), part)
    del wanted.uns["log1p"]
    same(found.uns, wanted.uns, "uns")
    same(found.raw.X, wanted.raw.X, "raw")
    same(found.raw.var, wanted.raw.var, "raw/var")
    same(dict(found.raw.varm), dict(wanted.raw.varm), "raw/varm")
    with h5py.File(before) as a, h5py.File(after) as b:
        assert b["layers/counts/indices"].dtype == a["layers/counts/indices"].dtype
        assert b["layers/dense_half"].dtype == np.float16
        if every_cell == "1":
            same_bytes(a["raw"], b["raw"])
        if (every_cell, every_gene) == ("1", "1"):
            same_bytes(a["layers"], b["layers"])


def check_raw(before, after):
    wanted, found = anndata.read_h5ad(before), anndata.read_h5ad(after)
    assert not members(found, "layers") and not found.varm and not found.varp
    del wanted.obsm["cube"]
    assert list(found.var_names) == list(wanted.raw.var_names[::2])
    same(dict(found.obsm), dict(wanted.obsm), "obsm")
    with h5py.File(before) as a, h5py.File(after) as b:
        same_bytes(a["raw"], b["raw"])


def compare(before, after, every_cell, every_gene, notes):
    """A file of any age: what the notes don't name is the same."""
    wanted, found = kept_of(anndata.read_h5ad(before), every_cell, every_gene), anndata.read_h5ad(after)
    left_out = [line.split(" was left out")[0].removesuffix(" of the input") for line in notes.splitlines()]
    for part in ["layers", "obsm", "obsp", "varm", "varp"]:
        values = {key: value for key, value in members(wanted, part).items() if f"{part}/{key}" not in left_out}
        if part not in left_out:
            same(members(found, part), values, part)
    if wanted.raw is None or "raw" in left_out:
        assert found.raw is None
    else:
        same(found.raw.X, wanted.raw.X, "raw")
        assert list(found.raw.var_names) == list(wanted.raw.var_names)
    for key in found.uns:
        if not any(path.startswith(f"uns/{key}") for path in left_out):
            same(found.uns[key], wanted.uns[key], f"uns/{key}")
    missing = {key for key in set(wanted.uns) - set(found.uns) if f"uns/{key}" not in left_out}
    assert missing <= {"log1p"}, missing


def compare_all(*arguments):
    for at in range(0, len(arguments), 5):
        print(arguments[at : at + 5], flush=True)
        compare(*arguments[at : at + 5])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    globals()[sys.argv[1]](*sys.argv[2:])
