"""Writes AnnData and 10x files in many layouts of HDF5, each with the text of what it holds.

    python layouts.py FOLDER [NAME...]

Without names all of them are written. FOLDER/list.tsv names them: file, layer, raw, genome, feature type (empty for none). Expected texts stand in FILE.expected;
they come from the data that were written, not from reading.
"""

import itertools
import os
import sys

import h5py
import hdf5plugin
import numpy as np
import pandas as pd
import scipy.sparse as sp

from dump import dump

OUT, WANTED = sys.argv[1], sys.argv[2:]
TEXT = h5py.string_dtype("utf-8")
LIST = []
RNG = np.random.default_rng(17)


def counts(n, g, seed=0, most=6, density=0.2):
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, most + 1, (n, g)) * (rng.random((n, g)) < density)
    return sp.csr_matrix(dense.astype("f8"))


def expect(name, matrix, obs, var, layer="", raw="", genome="", feature=""):
    key = "-".join(part for part in (name, layer, raw, genome, feature) if part)
    with open(os.path.join(OUT, key + ".expected"), "w", encoding="utf-8") as file:
        file.write(dump(matrix, obs, var))
    LIST.append("\t".join((name, layer, raw, genome, feature, key)))


def wanted(name):
    return not WANTED or name in WANTED


def encode(node, kind, version):
    node.attrs["encoding-type"] = kind
    node.attrs["encoding-version"] = version


def names(prefix, n):
    return [f"{prefix}{at}" for at in range(n)]


def write_frame(parent, key, labels, columns=()):
    group = parent.create_group(key)
    encode(group, "dataframe", "0.2.0")
    group.attrs["_index"] = "_index"
    group.attrs["column-order"] = np.array([name for name, _ in columns], dtype=TEXT) if columns else np.zeros(0)
    index = group.create_dataset("_index", data=np.array(labels, dtype=object), dtype=TEXT)
    encode(index, "string-array", "0.2.0")
    for name, values in columns:
        encode(group.create_dataset(name, data=values), "array", "0.2.0")


def write_sparse(parent, key, matrix, value="f4", index="i4", pointer="i4", store=None):
    group = parent.create_group(key)
    encode(group, matrix.format + "_matrix", "0.1.0")
    group.attrs["shape"] = np.array(matrix.shape)
    store = store or {}
    for name, values, kind in (
        ("data", matrix.data, value),
        ("indices", matrix.indices, index),
        ("indptr", matrix.indptr, pointer),
    ):
        group.create_dataset(name, data=values.astype(kind), **store)


def h5ad(name, matrix, write_x, libver=None, userblock=0, columns=()):
    """A file whose X is written by `write_x(file)`."""
    if not wanted(name):
        return
    path = os.path.join(OUT, name)
    libver = (libver, "latest") if libver else None
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        encode(file, "anndata", "0.1.0")
        write_x(file)
        write_frame(file, "obs", names("cell", matrix.shape[0]), columns)
        write_frame(file, "var", names("gene", matrix.shape[1]))
    obs = pd.DataFrame(dict(columns), index=names("cell", matrix.shape[0]))
    expect(name, matrix, obs, pd.DataFrame(index=names("gene", matrix.shape[1])))


VALUES = ["f2", "f4", "f8", ">f4", ">f8", ">f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4", ">u2", "?"]
INDICES = ["i4", "i8", "u4", "u8", "i2", "u2", ">i4", ">i8"]
POINTERS = ["i4", "i8", "u4", "u8", ">i8"]
LIBVERS = ["earliest", "v108", "v110", "v112", "v114", "latest"]
STORES = {
    "contiguous": {},
    "gzip": {"compression": "gzip"},
    "gzip9shuffle": {"compression": "gzip", "compression_opts": 9, "shuffle": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "fletcher": {"fletcher32": True},
    "shuffle": {"shuffle": True},
    "lzf": {"compression": "lzf"},
    "lzfshuffle": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "zstd": dict(hdf5plugin.Zstd()),
    "zstdshuffle": dict(hdf5plugin.Zstd(clevel=9), shuffle=True),
    "lz4": dict(hdf5plugin.LZ4()),
    "lz4small": dict(hdf5plugin.LZ4(nbytes=64)),
}
for codec, shuffle in itertools.product(["blosclz", "lz4", "lz4hc", "zlib", "zstd"], [0, 1, 2]):
    STORES[f"blosc-{codec}-{shuffle}"] = dict(hdf5plugin.Blosc(cname=codec, clevel=5, shuffle=shuffle))
CHUNKS = [None, (7,), (64,), (1000,), (100_000,)]


def stored(store, chunks, length, resizable):
    made = dict(STORES[store])
    if chunks is not None:
        # Chunks larger than the data need data that could grow.
        if chunks[0] > length and not resizable:
            chunks = (length,)
        made["chunks"] = chunks
    if resizable and (made or chunks):
        made["maxshape"] = (None,)
        made.setdefault("chunks", True)
    return made


def sparse_layouts():
    small = counts(40, 30, seed=1)
    for value in VALUES:
        matrix = small.copy()
        matrix.data = matrix.data.astype(value).astype("f8")
        h5ad(f"value_{value.replace('>', 'be_').replace('?', 'bool')}.h5ad", matrix,
             lambda file, matrix=matrix, value=value: write_sparse(file, "X", matrix, value))
    for index, pointer in itertools.product(INDICES, POINTERS):
        h5ad(f"index_{index}_{pointer}.h5ad".replace(">", "be_"), small,
             lambda file, i=index, p=pointer: write_sparse(file, "X", small, index=i, pointer=p))
    large = counts(90, 40, seed=2)
    medium = counts(40, 30, seed=4)
    for store in STORES:
        for form in ("csr", "csc"):
            matrix = medium.asformat(form)
            h5ad(f"store_{store}_{form}.h5ad", medium,
                 lambda file, m=matrix, s=store: write_sparse(file, "X", m, store=stored(s, (100,), m.nnz, True)), "v110")
    # Every index of chunks: version 1 trees, single chunks, fixed and extensible arrays, with and without filters.
    for libver, (at, chunks), resizable, store in itertools.product(
        LIBVERS, enumerate(CHUNKS), (False, True), ("contiguous", "gzip", "all")
    ):
        kinds = RNG.choice(["f4", "i4", "f8", "u2"]), RNG.choice(["i4", "i8"]), RNG.choice(["i4", "i8"])
        def write(file, c=chunks, r=resizable, s=store, kinds=kinds):
            group_store = stored(s, c, min(large.nnz, large.shape[0] + 1), r)
            write_sparse(file, "X", large, *map(str, kinds), store=group_store)
        h5ad(f"chunks_{libver}_{at}_{'grow' if resizable else 'fixed'}_{store}.h5ad", large, write, libver=libver)
    for seed in range(60):
        rng = np.random.default_rng(1000 + seed)
        pick = lambda options: options[rng.integers(len(options))]
        matrix = counts(int(rng.integers(2, 120)), int(rng.integers(1, 90)), seed=seed, density=rng.random())
        value, index, pointer, store = pick(VALUES[:-1]), pick(INDICES), pick(POINTERS), pick(list(STORES))
        form, libver, chunks, grow = pick(["csr", "csc"]), pick(LIBVERS), pick(CHUNKS), bool(rng.integers(2))
        stored_as = matrix.asformat(form)
        def write(file, m=stored_as, v=value, i=index, p=pointer, s=store, c=chunks, g=grow):
            shortest = max(1, min(m.nnz, len(m.indptr)))
            write_sparse(file, "X", m, v, i, p, stored(s, c, shortest, g) if m.nnz else {})
        h5ad(f"random_{seed:02}.h5ad", matrix, write, libver=libver)


def odd_sparse():
    matrix = counts(50, 40, seed=3)
    for block in (512, 2048, 65536):
        h5ad(f"userblock_{block}.h5ad", matrix, lambda file: write_sparse(file, "X", matrix), userblock=block)
    empty = sp.csr_matrix((5, 4))
    h5ad("no_entries.h5ad", empty, lambda file: write_sparse(file, "X", empty))
    gaps = sp.vstack([sp.csr_matrix((3, 40)), matrix, sp.csr_matrix((4, 40))]).tocsr()
    h5ad("empty_rows.h5ad", gaps, lambda file: write_sparse(file, "X", gaps, store={"chunks": (16,)}))
    h5ad("empty_rows_csc.h5ad", gaps, lambda file: write_sparse(file, "X", gaps.tocsc(), store={"chunks": (16,)}))
    messy = matrix.copy()
    for row in range(50):
        span = slice(messy.indptr[row], messy.indptr[row + 1])
        order = RNG.permutation(messy.indptr[row + 1] - messy.indptr[row])
        messy.indices[span], messy.data[span] = messy.indices[span][order], messy.data[span][order]
    h5ad("unsorted.h5ad", matrix, lambda file: write_sparse(file, "X", messy))
    repeated = sp.csr_matrix(
        (np.array([1.0, 2, 3, 0, 4, 5]), np.array([1, 1, 0, 2, 3, 3]), np.array([0, 3, 3, 6])), shape=(3, 4)
    )
    h5ad("repeated_and_zero.h5ad", repeated, lambda file: write_sparse(file, "X", repeated))
    big = matrix.copy()
    big.data = big.data + 2.0**40
    for value in ("i8", "u8", "f8"):
        h5ad(f"large_values_{value}.h5ad", big, lambda file, v=value: write_sparse(file, "X", big, v))

    def compact(file):
        write_sparse(file, "X", matrix)
        del file["X/indptr"]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((len(matrix.indptr),))
        data = h5py.h5d.create(file["X"].id, b"indptr", h5py.h5t.NATIVE_INT64, space, plist)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, matrix.indptr.astype("i8"))

    h5ad("compact.h5ad", matrix, compact)

    def raw_chunks(file):
        """Chunks for which the writer left filters out."""
        write_sparse(file, "X", matrix)
        del file["X/data"]
        data = file["X"].create_dataset("data", shape=(matrix.nnz,), dtype="f4", chunks=(32,), compression="gzip", shuffle=True)
        values = np.zeros(-(-matrix.nnz // 32) * 32, "f4")
        values[: matrix.nnz] = matrix.data
        for at in range(0, len(values), 32):
            data.id.write_direct_chunk((at,), values[at : at + 32].tobytes(), filter_mask=3)

    h5ad("filters_left_out.h5ad", matrix, raw_chunks)

    def shrunk(file):
        write_sparse(file, "X", matrix)
        for name, values in (("data", matrix.data), ("indices", matrix.indices)):
            del file["X"][name]
            grown = file["X"].create_dataset(name, data=np.r_[values, np.ones(500)].astype("i4"), chunks=(64,), maxshape=(None,))
            grown.resize((matrix.nnz,))

    for libver in ("earliest", "latest"):
        h5ad(f"shrunk_{libver}.h5ad", matrix, shrunk, libver=libver)

    def linked(file):
        write_sparse(file, "elsewhere", matrix)
        file["X"] = h5py.SoftLink("/elsewhere")

    h5ad("soft_link.h5ad", matrix, linked)
    def committed(file):
        write_sparse(file, "X", matrix)
        file["types/value"] = np.dtype("f8")
        del file["X/data"]
        file["X"].create_dataset("data", data=matrix.data, dtype=file["types/value"])

    def ordered(file):
        """Groups and attributes that remember the order of their making, and many of them."""
        group = file.create_group("X", track_order=True)
        for at in range(40):
            group.attrs[f"other {at}"] = at
        for at in range(40):
            group.create_group(f"other {at}", track_order=True)
        encode(group, "csr_matrix", "0.1.0")
        group.attrs["shape"] = np.array(matrix.shape)
        group["data"], group["indices"], group["indptr"] = matrix.data, matrix.indices, matrix.indptr

    for libver in ("earliest", "v110", "latest"):
        h5ad(f"committed_{libver}.h5ad", matrix, committed, libver=libver)
        h5ad(f"ordered_{libver}.h5ad", matrix, ordered, libver=libver)
    many = [(f"column {at}", np.arange(50) * at) for at in range(150)]
    for libver in ("earliest", "latest"):
        h5ad(f"many_columns_{libver}.h5ad", matrix, lambda file: write_sparse(file, "X", matrix), libver, columns=many)


def dense_layouts():
    matrix = counts(70, 33, seed=5)
    dense = matrix.toarray()
    kinds = {"contiguous": {}, "rows": {"chunks": (9, 33)}, "blocks": {"chunks": (16, 10)}, "columns": {"chunks": (70, 1)},
             "one": {"chunks": (70, 33)}, "grow": {"chunks": (32, 32), "maxshape": (None, None)}}
    for (kind, layout), libver, store in itertools.product(kinds.items(), ("earliest", "v110", "latest"), ("contiguous", "gzip9shuffle", "lzf")):
        if kind == "contiguous" and store != "contiguous":
            continue
        def write(file, layout=layout, store=store):
            made = file.create_dataset("X", data=dense.astype("f4"), **layout, **STORES[store])
            encode(made, "array", "0.2.0")
        h5ad(f"dense_{kind}_{libver}_{store}.h5ad", matrix, write, libver=libver)
    for value in VALUES:
        expected = sp.csr_matrix(dense.astype(value).astype("f8"))
        def write(file, value=value):
            file.create_dataset("X", data=dense.astype(value), chunks=(16, 10))
        h5ad(f"dense_value_{value.replace('>', 'be_').replace('?', 'bool')}.h5ad", expected, write)
    for fill in (0, 3):
        holes = np.full(dense.shape, float(fill))
        holes[16:32, 10:20] = dense[16:32, 10:20]
        def write(file, fill=fill):
            made = file.create_dataset("X", dense.shape, "i4", chunks=(16, 10), fillvalue=fill)
            made[16:32, 10:20] = dense[16:32, 10:20]
        for libver in ("earliest", "latest"):
            h5ad(f"dense_unwritten_{fill}_{libver}.h5ad", sp.csr_matrix(holes), write, libver=libver)


def tenx():
    matrix = counts(25, 36, seed=7)
    ids, symbols = names("ENSG", 36), names("G", 36)
    types = ["Gene Expression"] * 30 + ["Antibody Capture"] * 6
    genomes = ["GRCh38"] * 20 + ["mm10"] * 16
    for libver, fixed in itertools.product(("earliest", "latest"), (True, False)):
        kind = (lambda values: np.array(values, "S")) if fixed else (lambda values: np.array(values, dtype=TEXT))
        name = f"tenx_v3_{libver}_{'fixed' if fixed else 'variable'}.h5"
        if not wanted(name):
            continue
        with h5py.File(os.path.join(OUT, name), "w", libver=libver) as file:
            group = file.create_group("matrix")
            for key, values, dtype in (("data", matrix.data, "i4"), ("indices", matrix.indices, "i8"), ("indptr", matrix.indptr, "i8")):
                group.create_dataset(key, data=values.astype(dtype), chunks=(80,) if key != "indptr" else None, compression="gzip" if key != "indptr" else None, shuffle=key != "indptr" or None)
            group["shape"] = np.array([36, 25], "i4")
            group["barcodes"] = kind(names("AAAC", 25))
            features = group.create_group("features")
            features["_all_tag_keys"] = np.array(["genome"], "S")
            for key, values in (("id", ids), ("name", symbols), ("feature_type", types), ("genome", genomes)):
                features[key] = kind(values)
        obs = pd.DataFrame(index=names("AAAC", 25))
        var = pd.DataFrame({"gene_ids": ids, "feature_types": types, "genome": genomes}, index=symbols)
        chosen = lambda keep: (matrix[:, keep], obs, var[keep])
        is_gene = (var["feature_types"] == "Gene Expression").to_numpy()
        expect(name, *chosen(is_gene))
        expect(name, matrix, obs, var, feature="all")
        expect(name, *chosen(~is_gene), feature="Antibody Capture")
        expect(name, *chosen(is_gene & (var["genome"] == "mm10").to_numpy()), genome="mm10")


def written_by_anndata():
    import anndata as ad

    matrix = counts(12, 9, seed=9)
    obs = pd.DataFrame(
        {
            "plain": np.arange(12), "float": np.linspace(0, 1, 12), "half": np.arange(12).astype("f4"),
            "flag": np.arange(12) % 2 == 0, "text": [f"ä{at}" for at in range(12)],
            "category": pd.Categorical(list("abcabcabcab") + [None]),
            "ordered": pd.Categorical(["low", "high"] * 6, categories=["low", "high"], ordered=True),
            "numbers": pd.Categorical([10, 20, 30] * 4),
            "nullable": pd.array([1, None, 3] * 4, dtype="Int64"), "maybe": pd.array([True, None, False] * 4, dtype="boolean"),
            "words": pd.array(["x", None, "z"] * 4, dtype="string"),
        },
        index=names("c", 12),
    )
    var = pd.DataFrame({"id": names("ENSG", 9)}, index=["A", "A", "A-1", "B", "C", "D", "E", "é", "F"])
    raw = counts(12, 15, seed=10)
    layers = {"csc": matrix.tocsc() * 2, "dense": matrix.toarray() * 3, "counts": matrix.astype("i8") * 4}
    for compression in (None, "gzip", "lzf"):
        data = ad.AnnData(matrix.astype("f4"), obs.copy(), var.copy(), layers=dict(layers))
        data.raw = ad.AnnData(raw.astype("f4"), obs.copy(), pd.DataFrame(index=names("r", 15)))
        name = f"anndata_{compression}.h5ad"
        if not wanted(name):
            continue
        with h5py.File(os.path.join(OUT, name), "w", libver="v110" if compression else "earliest") as file:
            ad.io.write_elem(file, "/", data, dataset_kwargs={"compression": compression})
        back = ad.read_h5ad(os.path.join(OUT, name))
        expect(name, matrix, back.obs, back.var)
        expect(name, raw, back.obs, back.raw.var, raw="raw")
        for layer, values in layers.items():
            expect(name, values, back.obs, back.var, layer=layer)


os.makedirs(OUT, exist_ok=True)
sparse_layouts()
odd_sparse()
dense_layouts()
tenx()
written_by_anndata()
with open(os.path.join(OUT, "list.tsv"), "w") as file:
    file.write("\n".join(LIST) + "\n")
