"""Matrices of scipy, numpy and AnnData as sources that the native half reads. One home for what kinds of X there are."""

from __future__ import annotations

import logging
import sys

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
    if getattr(x, "ndim", None) != 2:
        raise TypeError(f"{name}: a matrix of cells x genes is expected, not {type(x).__name__}")
    if is_sparse(x):
        if x.format != "csr":
            log.info("%s is converted from %s to CSR", name, x.format.upper())
            x = x.tocsr()
        # A matrix may have room for more entries than it has.
        n_entries = int(x.indptr[-1]) if len(x.indptr) else 0
        return Source.csr(
            contiguous(x.indptr),
            contiguous(x.indices)[:n_entries],
            _values(x.data, name)[:n_entries],
            x.shape[1],
            **names,
        )
    dense = np.asarray(x)
    if dense.ndim != 2:
        raise TypeError(f"{name}: a matrix of cells x genes is expected, not {type(x).__name__}")
    if not dense.flags.c_contiguous:
        log.info("%s is copied row by row", name)
    return Source.dense(_values(dense, name).reshape(-1), dense.shape[1], **names)


def contiguous(array, dtype=None) -> np.ndarray:
    """The same numbers as this machine reads them: one after the other, aligned, in its byte order. No copy if they are."""
    return np.require(array, dtype or array.dtype.newbyteorder("="), ["C_CONTIGUOUS", "ALIGNED"])


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
