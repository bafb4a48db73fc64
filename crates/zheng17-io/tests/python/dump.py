"""What a file holds, as text: the same text that the Rust test writes of the same file.

Values come from anndata, scanpy and h5py, never from the program under test.
"""

import json
import struct

import numpy as np
import pandas as pd
import scipy.sparse as sp


def bits(value):
    return struct.pack(">d", float(value)).hex().rstrip("0") or "0"


def text(value):
    return "NA" if value is None else json.dumps(value, ensure_ascii=False)


def matrix_lines(matrix):
    """One line per cell: sorted columns with the bits of their summed values, zeros left out."""
    matrix = sp.csr_matrix(matrix, dtype="f8") if not sp.issparse(matrix) else sp.csr_matrix(matrix).astype("f8")
    matrix = matrix.copy()
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    yield f"shape {matrix.shape[0]} {matrix.shape[1]}"
    for row in range(matrix.shape[0]):
        span = slice(matrix.indptr[row], matrix.indptr[row + 1])
        entries = zip(matrix.indices[span], matrix.data[span])
        yield f"row {row}:" + "".join(f" {column}={bits(value)}" for column, value in entries)


def number_type(dtype):
    # Halves are kept as 32-bit floats.
    return "float32" if dtype == np.float16 else dtype.newbyteorder("=").name


def plain(values):
    values = np.asarray(values)
    if values.dtype == bool:
        return "bool:" + "".join(f" {str(bool(v)).lower()}" for v in values)
    if values.dtype.kind in "iu":
        return f"{number_type(values.dtype)}:" + "".join(f" {int(v)}" for v in values)
    if values.dtype.kind == "f":
        return f"{number_type(values.dtype)}:" + "".join(f" {bits(v)}" for v in values)
    return "text:" + "".join(f" {text(None if v is None or v is pd.NA or v != v else str(v))}" for v in values)


def column(series):
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = "".join(f" {int(code)}" for code in series.cat.codes)
        categories = plain(series.cat.categories.to_numpy())
        return f"categorical ordered={str(bool(series.cat.ordered)).lower()}:{codes}; {categories}"
    if isinstance(dtype, pd.BooleanDtype):
        return "nullable bool:" + "".join(f" {'NA' if v is pd.NA else str(bool(v)).lower()}" for v in series)
    if isinstance(dtype, (pd.StringDtype,)):
        return plain(series.to_numpy(dtype=object, na_value=None))
    if pd.api.types.is_extension_array_dtype(dtype):
        name = dtype.numpy_dtype.name
        return f"nullable {name}:" + "".join(f" {'NA' if v is pd.NA else int(v)}" for v in series)
    return plain(series.to_numpy())


def frame_lines(name, frame):
    yield f"{name} names:" + "".join(f" {text(str(label))}" for label in frame.index)
    for label in frame.columns:
        yield f"{name} {text(str(label))} {column(frame[label])}"


def dump(matrix, obs, var):
    lines = [*matrix_lines(matrix), *frame_lines("obs", obs), *frame_lines("var", var)]
    return "\n".join(lines) + "\n"
