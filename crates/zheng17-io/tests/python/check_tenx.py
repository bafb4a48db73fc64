"""Reads a file of the 10x writer with scanpy and h5py, and stops where it is not what Cell Ranger would have written."""

import sys
import warnings

import h5py
import numpy as np
import scanpy as sc

warnings.simplefilter("ignore", UserWarning)
path, n_cells, n_genes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

adata = sc.read_10x_h5(path)
i, j = np.indices((n_cells, n_genes))
wanted = np.where((i * 7 + j * 3) % 11 < 3, 1 + (i + j) % 500, 0)
assert adata.shape == (n_cells, n_genes)
np.testing.assert_array_equal(adata.X.toarray(), wanted)
assert list(adata.obs_names) == [f"{cell:016}-1" for cell in range(n_cells)]
assert list(adata.var_names) == [f"GENE{0 if gene == 1 else gene}" for gene in range(n_genes)]
assert list(adata.var["gene_ids"]) == [f"ENSG{gene:011}" for gene in range(n_genes)]
assert set(adata.var["feature_types"]) == {"Gene Expression"} and set(adata.var["genome"]) == {"GRCh38"}

with h5py.File(path) as file:
    assert file.attrs["filetype"] == "matrix" and file.attrs["version"] == 2
    matrix = file["matrix"]
    types = {name: matrix[name].dtype for name in ["data", "indices", "indptr", "shape"]}
    assert types == {"data": np.int32, "indices": np.int64, "indptr": np.int64, "shape": np.int32}, types
    for name in types:
        dataset = matrix[name]
        assert dataset.chunks == (80_000,) and dataset.maxshape == (None,), name
        assert dataset.compression == "gzip" and dataset.compression_opts == 4 and dataset.shuffle, name
    assert matrix["barcodes"].dtype == "S18" and matrix["features/id"].dtype == "S15"
    assert list(matrix["features/_all_tag_keys"]) == [b"genome"]
