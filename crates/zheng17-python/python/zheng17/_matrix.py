"""Matrices of scipy, numpy and AnnData as sources that the native half reads. One home for what kinds of X there are."""

from __future__ import annotations

import logging
import sys
import unicodedata

import numpy as np
from scipy import sparse

from zheng17._zheng17 import Source

log = logging.getLogger("zheng17")


def is_sparse(x) -> bool:
    """Whether this is a matrix or array of scipy, in any sparse format."""
    return sparse.issparse(x)


def class_of(x) -> type:
    """The class of scipy that a sparse matrix is of: a view of AnnData has a class of its own."""
    return next(parent for parent in type(x).__mro__ if parent.__module__.startswith("scipy."))


def is_dask(x) -> bool:
    """Whether this is an array of Dask, which is not imported to find that out."""
    array = sys.modules.get("dask.array")
    return array is not None and isinstance(x, array.Array)


def has_float64(x) -> bool:
    """Whether results are to have 64 bits: as scanpy does, they have the width of what comes in."""
    dtype = np.dtype(x.dtype)
    return dtype.kind == "f" and dtype.itemsize >= 8


def source(x, *, name: str = "X", cell_names=None, gene_names=None, first_cell: int = 0) -> Source:
    """A source over a matrix in memory, read where it is.

    Compressed rows and dense matrices that lie row by row are not copied; columns and coordinates are converted once. ``name``,
    ``cell_names`` and ``gene_names`` are for error messages; ``first_cell`` is the place of the first row in a larger matrix.

    Raises
    ------
    TypeError
        For what is no matrix of numbers.
    ValueError
        If the arrays of a sparse matrix don't belong together.
    """
    names = {"name": name, "cell_names": cell_names, "gene_names": gene_names, "first_cell": first_cell}
    # The native half looks at each index of compressed rows as it reads them.
    check(x, name, with_indices=getattr(x, "format", None) != "csr")
    if is_sparse(x):
        if x.format != "csr":
            log.info("%s is converted from %s to CSR", name, x.format.upper())
            x = x.tocsr()
        # A matrix may have room for more entries than it has.
        n_entries = int(x.indptr[-1])
        return Source.csr(
            _positions(x.indptr),
            _positions(x.indices)[:n_entries],
            _values(x.data, name)[:n_entries],
            x.shape[1],
            **names,
        )
    dense = np.asarray(x)
    if dense.ndim != 2:
        raise TypeError(f"{name}: a matrix of cells x genes is expected, not {_described(x)}")
    if not dense.flags.c_contiguous:
        log.info("%s is copied row by row", name)
    if dense.shape[1] == 0:
        # Without genes, numbers in one row don't say how many cells there are.
        empty = np.zeros(len(dense) + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
        return Source.csr(*empty, 0, **names)
    return Source.dense(_values(dense, name).reshape(-1), dense.shape[1], **names)


def check(x, name: str = "X", *, with_indices: bool = True) -> None:
    """Refuses what is no matrix of numbers, and sparse matrices whose arrays don't belong together: scipy's own functions
    would read and write beyond the ends of such arrays. ``with_indices=False`` leaves out those of compressed rows, columns
    and blocks, of which there may be many.

    Raises
    ------
    TypeError
        For what has not two dimensions, and for masked arrays.
    ValueError
        For a sparse matrix that is broken, naming what is wrong.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: a masked array has values that are not there, which counts can't have; "
            "numpy.ma.filled(x, 0) makes zeros of them"
        )
    if is_dask(x):
        raise TypeError(f"{name}: a matrix in memory is expected, not an array of Dask; zheng17.dask takes those")
    if getattr(x, "ndim", None) != 2:
        raise TypeError(f"{name}: a matrix of cells x genes is expected, not {_described(x)}")
    if not is_sparse(x):
        return
    n_rows, n_columns = x.shape
    kind = f"{name} ({x.format.upper()})"
    if x.format in ("csr", "csc", "bsr"):
        n_major, n_minor = (n_columns, n_rows) if x.format == "csc" else (n_rows, n_columns)
        if x.format == "bsr":
            block = x.data.shape[1:]
            if len(block) != 2 or 0 in block or n_rows % block[0] or n_columns % block[1]:
                raise ValueError(f"{kind}: blocks of shape {block} don't make {n_rows} x {n_columns}")
            n_major, n_minor = n_rows // block[0], n_columns // block[1]
        _check_compressed(x, n_major, n_minor, kind, with_indices)
    elif x.format == "coo":
        if not len(x.row) == len(x.col) == len(x.data):
            raise ValueError(f"{kind}: {len(x.row)} rows and {len(x.col)} columns for {len(x.data)} values")
        _check_range(x.row, n_rows, "row", kind)
        _check_range(x.col, n_columns, "column", kind)
    elif x.format == "dia":
        if x.data.ndim != 2 or len(x.offsets) != len(x.data):
            raise ValueError(f"{kind}: {len(x.offsets)} offsets for data of shape {x.data.shape}")
    elif x.format == "lil":
        if not len(x.rows) == len(x.data) == n_rows or any(map(_differ, x.rows, x.data)):
            raise ValueError(f"{kind}: rows and data don't belong together")
        for columns in x.rows:
            _check_range(np.asarray(columns, dtype=np.int64), n_columns, "column", kind)


def _check_compressed(x, n_major: int, n_minor: int, kind: str, with_indices: bool) -> None:
    of_columns = x.format == "csc"
    indptr, indices = x.indptr, x.indices
    for array, what in ((indptr, "indptr"), (indices, "indices")):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(f"{kind}: {what} must be whole numbers in one dimension, not {array.dtype} in {array.ndim}")
    if len(indptr) != n_major + 1:
        lines = "columns" if of_columns else "rows"
        raise ValueError(f"{kind}: indptr has {len(indptr)} entries, but {n_major} {lines} need {n_major + 1}")
    if indptr[0] != 0:
        raise ValueError(f"{kind}: indptr doesn't start at 0, but at {indptr[0]}")
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if falls.size:
        at = int(falls[0])
        raise ValueError(f"{kind}: indptr decreases, from {indptr[at]} to {indptr[at + 1]}, at position {at + 1}")
    n_entries = int(indptr[-1])
    # There may be room for more.
    if n_entries > min(len(indices), len(x.data)):
        raise ValueError(
            f"{kind}: indptr ends at {n_entries}, beyond the {len(indices)} indices or the {len(x.data)} values"
        )
    if with_indices:
        _check_range(indices[:n_entries], n_minor, "row" if of_columns else "column", kind)


def printable(name) -> str:
    """A name for a message, without characters that a terminal takes for commands."""
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) == "Cc" else character
        for character in str(name)
    )


def _check_range(indices: np.ndarray, end: int, what: str, kind: str) -> None:
    if len(indices) == 0 or (indices.min() >= 0 and indices.max() < end):
        return
    at = int(np.flatnonzero((indices < 0) | (indices >= end))[0])
    raise ValueError(f"{kind}: {what} index {indices[at]} at position {at} is out of range: there are {end} {what}s")


def _differ(one, other) -> bool:
    return len(one) != len(other)


def _described(x) -> str:
    shape = getattr(x, "shape", None)
    return type(x).__name__ if shape is None else f"{type(x).__name__} of shape {shape}"


def contiguous(array, dtype=None) -> np.ndarray:
    """The same numbers as this machine reads them: one after the other, aligned, in its byte order. No copy if they are."""
    return np.require(array, dtype or array.dtype.newbyteorder("="), ["C_CONTIGUOUS", "ALIGNED"])


def _positions(array: np.ndarray) -> np.ndarray:
    """Row pointers or indices in a number type that the native half reads."""
    return contiguous(array) if array.dtype.itemsize >= 4 else contiguous(array, np.int32)


def _values(array: np.ndarray, name: str) -> np.ndarray:
    """Values in a number type that the native half reads."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        return contiguous(array).view(np.uint8)
    if kind == "f" and size == 2:
        return contiguous(array, np.float32)
    if kind in "iu" or (kind == "f" and size <= 8):
        return contiguous(array)
    if kind == "f":
        return contiguous(array, np.float64)
    raise TypeError(f"{name}: counts are expected, not values of type {array.dtype}")
