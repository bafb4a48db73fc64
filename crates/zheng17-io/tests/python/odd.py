"""Writes files that are wrong or unusual, one fault each. What must come of them stands in the Rust test.

    python odd.py FOLDER
"""

import os
import sys

import h5py
import hdf5plugin
import numpy as np
import scipy.sparse as sp

OUT = sys.argv[1]
TEXT = h5py.string_dtype("utf-8")
X = sp.csr_matrix(np.array([[1, 0, 2, 0, 0], [0, 0, 0, 0, 3], [4, 5, 0, 0, 6], [0, 0, 0, 0, 0]], "f4"))


def encode(node, kind, version="0.2.0"):
    node.attrs["encoding-type"] = kind
    node.attrs["encoding-version"] = version


def texts(values):
    return np.array(values, dtype=object)


def frame(file, key, labels, columns=None, index="_index"):
    group = file.create_group(key)
    encode(group, "dataframe")
    group.attrs["_index"] = index
    group.attrs["column-order"] = np.array(list(columns), dtype=TEXT) if columns else np.zeros(0)
    if labels is not None:
        group.create_dataset(index, data=texts(labels), dtype=TEXT)
    for name, write in (columns or {}).items():
        write(group, name) if callable(write) else group.create_dataset(name, data=write)


def sparse(file, key="X", kind="csr_matrix", shape=X.shape, data=X.data, indices=X.indices, indptr=X.indptr):
    group = file.create_group(key)
    encode(group, kind, "0.1.0")
    if shape is not None:
        group.attrs["shape"] = np.array(shape)
    for name, values in (("data", data), ("indices", indices), ("indptr", indptr)):
        group.create_dataset(name, data=values)
    return group


def h5ad(name, write_x=sparse, obs=None, n_obs=4, obs_columns=None, more=None):
    with h5py.File(os.path.join(OUT, name + ".h5ad"), "w", libver="latest") as file:
        encode(file, "anndata", "0.1.0")
        if write_x:
            write_x(file)
        frame(file, "obs", obs or [f"c{at}" for at in range(n_obs)], obs_columns)
        frame(file, "var", [f"g{at}" for at in range(5)])
        if more:
            more(file)


def categorical(codes, categories, ordered=False):
    def write(group, name):
        node = group.create_group(name)
        encode(node, "categorical")
        node.attrs["ordered"] = ordered
        node["codes"] = np.array(codes, "i1")
        node["categories"] = texts(categories) if isinstance(categories[0], str) else np.array(categories)
    return write


def encoded_group(kind):
    def write(group, name):
        encode(group.create_group(name), kind)
    return write


def categories_in_themselves(group, name):
    categorical([0, 0, 0, 0], ["T"])(group, name)
    del group[name]["categories"]
    group[name]["categories"] = group[name]


# The matrix.
h5ad("unknown_encoding", lambda file: sparse(file, kind="coo_matrix"))
h5ad("no_encoding", lambda file: file.create_group("X"))
h5ad("unknown_array_encoding", lambda file: encode(file.create_dataset("X", data=X.toarray()), "rec-array"))
h5ad("no_x", None, more=lambda file: [sparse(file, "layers/" + name) for name in ("counts", "spliced")])
h5ad("null_x", lambda file: encode(file.create_dataset("X", data=h5py.Empty("f4")), "null"))
h5ad("one_dimension", lambda file: file.create_dataset("X", data=np.ones(4)))
h5ad("texts_as_values", lambda file: file.create_dataset("X", data=np.full((4, 5), b"1")))
h5ad("complex_values", lambda file: file.create_dataset("X", data=np.ones((4, 5), "c8")))
h5ad("no_shape", lambda file: sparse(file, shape=None))
h5ad("three_dimensions", lambda file: sparse(file, shape=(4, 5, 6)))
h5ad("lengths_differ", lambda file: sparse(file, data=X.data[:-1]))
h5ad("pointers_missing", lambda file: sparse(file, indptr=X.indptr[:-1]))
h5ad("pointers_start", lambda file: sparse(file, indptr=np.array([1, 2, 3, 6, 6])))
h5ad("pointers_decrease", lambda file: sparse(file, indptr=np.array([0, 4, 3, 6, 6])))
h5ad("pointers_end", lambda file: sparse(file, indptr=np.array([0, 2, 3, 6, 7])))
h5ad("pointers_negative", lambda file: sparse(file, indptr=np.array([0, -2, 3, 6, 6])))
h5ad("index_too_large", lambda file: sparse(file, indices=np.array([0, 2, 4, 0, 5, 4])))
h5ad("index_negative", lambda file: sparse(file, indices=np.array([0, 2, 4, 0, -1, 4])))
h5ad("index_far_too_large", lambda file: sparse(file, indices=np.array([0, 2, 4, 0, 1 << 40, 4])))
h5ad("index_too_large_csc", lambda file: sparse(file, kind="csc_matrix", indices=np.array([0, 2, 4, 0, 1, 3]), indptr=np.array([0, 2, 3, 6, 6, 6])))
REAL = sp.csc_matrix(X.toarray() * np.array([[1.0], [1.0], [0.1], [1.0]]))
h5ad("reals_csc", lambda file: sparse(file, kind="csc_matrix", data=REAL.data, indices=REAL.indices, indptr=REAL.indptr))
h5ad("index_floats", lambda file: sparse(file, indices=X.indices.astype("f4")))
h5ad("more_cells_than_names", n_obs=3)


def unwritten(file):
    group = sparse(file)
    for name in ("data", "indices"):
        del group[name]
        group.create_dataset(name, shape=(1 << 40,), dtype="i4", chunks=(1 << 20,), compression="gzip")
    del group["indptr"]
    group["indptr"] = np.array([0, 0, 0, 0, 1 << 40])


h5ad("unwritten", unwritten)


def unknown_filter(file):
    group = sparse(file)
    del group["data"]
    group.create_dataset("data", data=X.data, chunks=(6,), **hdf5plugin.Bitshuffle())


h5ad("unknown_filter", unknown_filter)


def elsewhere(file):
    group = sparse(file)
    del group["data"]
    group.create_dataset("data", shape=(6,), dtype="f4", external=[("data.bin", 0, 24)])


h5ad("values_in_another_file", elsewhere)


def without_data(link=None):
    def write(file):
        group = sparse(file)
        del group["data"]
        if link:
            group["data"] = h5py.SoftLink(link)
    return write


h5ad("data_missing", without_data())
h5ad("link_to_nothing", without_data("/nowhere"))
h5ad("link_to_itself", without_data("/X/data"))
h5ad("link_to_another_file", lambda file: file.__setitem__("X", h5py.ExternalLink("other.h5ad", "/X")))

# Frames.
h5ad("column_of_unknown_encoding", obs_columns={"lists": encoded_group("awkward-array"), "n": np.arange(4)})
h5ad("code_out_of_range", obs_columns={"kind": categorical([0, 2, 1, -1], ["T", "B"]), "n": np.arange(4)})
h5ad("category_twice", obs_columns={"kind": categorical([0, 1, 2, -1], ["T", "B", "T"]), "n": np.arange(4)})
h5ad("categories_in_themselves", obs_columns={"kind": categories_in_themselves})
h5ad("code_below_range", obs_columns={"kind": categorical([0, -2, 1, -1], ["T", "B"])})
h5ad("column_too_short", obs_columns={"n": np.arange(3)})
h5ad("column_of_two_dimensions", obs_columns={"n": np.zeros((4, 2))})
h5ad("column_missing", obs_columns={"n": lambda group, name: None})
h5ad("column_not_utf8", obs_columns={"t": np.array([b"a", b"\xff", b"c", b"d"])})
h5ad("duplicate_names", obs=["x", "x", "y", "y"])
h5ad("logged", more=lambda file: (file.create_group("uns/log1p"), sparse(file, "layers/counts")))
h5ad("other_parts", more=lambda file: encode(file.create_group("uns/graph"), "from-the-future"))


def groups_within_themselves(file):
    file["uns/kept"] = 1
    file["uns/me"] = file["uns"]
    file["uns/inner/up"] = file["/"]
    encode(file.create_group("uns/ragged"), "awkward-array")
    file["uns/ragged/again"] = file["uns/ragged"]


def raw_category_twice(file):
    sparse(file, "raw/X")
    frame(file, "raw/var", [f"g{at}" for at in range(5)], {"kind": categorical([0, 1, 2, 0, 1], ["T", "B", "T"]), "n": np.arange(5)})


h5ad("raw_category_twice", more=raw_category_twice)
h5ad("groups_within_themselves", more=groups_within_themselves)
with h5py.File(os.path.join(OUT, "no_index.h5ad"), "w", libver="latest") as file:
    sparse(file)
    frame(file, "obs", None)
    frame(file, "var", [f"g{at}" for at in range(5)])
with h5py.File(os.path.join(OUT, "frame_missing.h5ad"), "w", libver="latest") as file:
    encode(file, "anndata", "0.1.0")
    sparse(file)
    frame(file, "var", [f"g{at}" for at in range(5)])
# What anndata 0.6 wrote: records, categories elsewhere.
with h5py.File(os.path.join(OUT, "records.h5ad"), "w") as file:
    group = file.create_group("X")
    group.attrs["h5sparse_format"] = b"csr"
    group.attrs["h5sparse_shape"] = X.shape
    group["data"], group["indices"], group["indptr"] = X.data, X.indices, X.indptr
    rows = [(f"c{at}".encode(), at % 2, at > 1, at / 2) for at in range(4)]
    file["obs"] = np.array(rows, dtype=[("index", "S4"), ("louvain", "i1"), ("flag", "?"), ("x", "f4")])
    file["var"] = np.array([(f"g{at}".encode(),) for at in range(5)], dtype=[("index", "S4")])
    file.create_group("uns")["louvain_categories"] = np.array([b"first", b"second"])


# 10x.
def tenx(name, groups, v3=True):
    with h5py.File(os.path.join(OUT, name + ".h5"), "w", libver="latest") as file:
        file["stray"] = 1
        for genome, types in groups.items():
            group = file.create_group(genome)
            group["data"], group["indices"], group["indptr"] = X.data.astype("i4"), X.indices.astype("i8"), X.indptr.astype("i8")
            group["shape"] = np.array([5, 4], "i4")
            group["barcodes"] = np.array([f"AAAC{at}-1" for at in range(4)], "S")
            ids = np.array([f"{genome}{at}" for at in range(5)], "S")
            if v3:
                features = group.create_group("features")
                features["id"], features["name"] = ids, np.array(["A", "B", "A", "C", "D"], "S")
                if types:
                    features["feature_type"] = np.array(types, "S")
            else:
                group["genes"], group["gene_names"] = ids, np.array(["A", "B", "A", "C", "D"], "S")


GENES = ["Gene Expression"] * 3
tenx("types", {"matrix": [*GENES, "Antibody Capture", "CRISPR Guide Capture"]})
tenx("no_genes", {"matrix": ["Antibody Capture"] * 5})
tenx("no_types", {"matrix": None})
tenx("two_genomes", {"hg19": None, "mm10": None}, v3=False)
tenx("one_genome", {"hg19": None}, v3=False)
with h5py.File(os.path.join(OUT, "types.h5"), "r") as file, h5py.File(os.path.join(OUT, "feature_out_of_range.h5"), "w", libver="latest") as broken:
    file.copy("matrix", broken)
    broken["matrix/indices"][4] = 5

for missing in ("shape", "barcodes", "data"):
    with h5py.File(os.path.join(OUT, "types.h5"), "r") as file, h5py.File(os.path.join(OUT, f"{missing}_missing.h5"), "w", libver="latest") as broken:
        file.copy("matrix", broken)
        del broken["matrix"][missing]

# Other things in HDF5.
with h5py.File(os.path.join(OUT, "plain.h5"), "w", libver="latest") as file:
    for at in range(12):
        file[f"part{at:02}"] = at
with h5py.File(os.path.join(OUT, "nothing.h5"), "w", libver="latest") as file:
    pass
with h5py.File(os.path.join(OUT, "tiny.loom"), "w", libver="latest") as file:
    file["matrix"] = X.toarray().T
    for name in ("row_attrs", "col_attrs", "layers"):
        file.create_group(name)
with h5py.File(os.path.join(OUT, "tiny.h5mu"), "w", libver="latest") as file:
    encode(file, "MuData", "0.1.0")
    for name in ("mod/rna", "mod/atac", "obs", "var"):
        file.create_group(name)
