"""Single steps of preprocessing, with scanpy's names, parameters and places for results: ``import zheng17.pp``.

Each does what the function of the same name in :mod:`scanpy.pp` (1.12) does, so that a pipeline can switch step by step, and any
step may be scanpy's own. X may be CSR, CSC or dense, a matrix or an array, of any number type; whole numbers become floats as
in scanpy. Parameters that do not apply here are refused, not ignored. If a step fails, the object is as it was.

A step changes an :class:`anndata.AnnData` in place and returns nothing; with ``copy=True`` it returns a changed copy.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd

from zheng17 import _matrix, _zheng17

__all__ = ["filter_genes", "highly_variable_genes", "log1p", "normalize_total", "pca", "scale"]

log = logging.getLogger("zheng17")

_N_COMPS = 50
_UNSET: Any = object()
_NOTHING: Mapping = MappingProxyType({})


def filter_genes(
    data,
    *,
    min_counts: int | None = None,
    min_cells: int | None = None,
    max_counts: int | None = None,
    max_cells: int | None = None,
    inplace: bool = True,
    copy: bool = False,
):
    """Keep the genes with enough counts, or in enough cells.

    Parameters
    ----------
    data
        AnnData, or a matrix of cells x genes.
    min_counts, min_cells, max_counts, max_cells
        Limits of a gene's total, or of the number of cells where it is above 0. Exactly one of them must be given.
    inplace
        Whether ``data`` is changed, instead of returning what there is to know.

    Returns
    -------
    tuple | AnnData | None
        With ``inplace=False`` and for a matrix: which genes to keep (bool, one for each gene), and the total or the number of
        cells of each. Otherwise ``data`` has only the genes that are kept, and ``var["n_counts"]`` or ``var["n_cells"]``.

    Raises
    ------
    ValueError
        Unless exactly one limit is given.

    Examples
    --------
    >>> import anndata, numpy as np, zheng17.pp
    >>> adata = anndata.AnnData(np.array([[1, 0, 2], [0, 0, 3]], dtype=np.float32))
    >>> zheng17.pp.filter_genes(adata, min_counts=1)
    >>> adata.shape, list(adata.var["n_counts"])
    ((2, 2), [1.0, 5.0])
    """
    limits = {"min_counts": min_counts, "min_cells": min_cells, "max_counts": max_counts, "max_cells": max_cells}
    given = [name for name, limit in limits.items() if limit is not None]
    if len(given) != 1:
        raise ValueError("exactly one of min_counts, min_cells, max_counts and max_cells must be given")
    of_counts = given[0].endswith("counts")
    adata = data if _is_anndata(data) else None
    x = data if adata is None else _matrix_of(adata, "filter_genes")
    found = _zheng17.gene_statistics(_source(x, adata), False)
    number = found["totals"] if of_counts else found["n_positive"].astype(np.int64)
    if of_counts and np.dtype(x.dtype).kind in "iub":
        number = number.astype(np.int64)
    keep = number >= limits[given[0]] if given[0].startswith("min") else number <= limits[given[0]]
    if not keep.all():
        log.info("%d genes of %d are removed: %s=%s", (~keep).sum(), len(keep), given[0], limits[given[0]])
    if adata is None or not inplace:
        return keep, number
    new = adata[:, keep].copy()
    new.var["n_counts" if of_counts else "n_cells"] = number[keep]
    if copy:
        return new
    adata._init_as_actual(new)
    return None


def normalize_total(
    adata,
    *,
    target_sum: float | None = None,
    exclude_highly_expressed: bool = False,
    max_fraction: float = 0.05,
    key_added: str | None = None,
    layer: str | None = None,
    obsm: str | None = None,
    inplace: bool = True,
    copy: bool = False,
):
    """Scale each cell to the same total.

    Parameters
    ----------
    adata
        Counts, cells x genes.
    target_sum
        The total that cells get; the median of the totals above 0 if not given.
    exclude_highly_expressed, max_fraction
        Whether totals leave out genes that have more than ``max_fraction`` of the counts of some cell.
    key_added
        The column of ``obs`` for the factor of each cell: its total over the target.
    layer
        The layer to scale, instead of X.
    obsm
        Not here: scanpy has it.
    inplace
        Whether ``adata`` is changed, instead of returning a dict with ``X`` and ``norm_factor``.

    Raises
    ------
    ValueError
        For values that are negative or not finite, naming cell and gene; if every count is 0 and no target is given.

    Examples
    --------
    >>> import anndata, numpy as np, zheng17.pp
    >>> adata = anndata.AnnData(np.array([[1, 1], [0, 6]], dtype=np.float32))
    >>> zheng17.pp.normalize_total(adata, key_added="factor")
    >>> adata.X.tolist(), adata.obs["factor"].tolist()
    ([[2.0, 2.0], [0.0, 4.0]], [0.5, 1.5])
    """
    if copy and not inplace:
        raise ValueError("copy=True and inplace=False can't go together")
    if not 0 <= max_fraction <= 1:
        raise ValueError(f"max_fraction must be between 0 and 1, not {max_fraction}")
    if target_sum is not None and not 0 < target_sum < np.inf:
        raise ValueError(f"target_sum must be positive and finite, not {target_sum}")
    _refuse("normalize_total", obsm=(obsm, None))
    x = _rows(_float(_matrix_of(adata, "normalize_total", layer), np.float32, _name(layer)))
    max_fraction_wanted = max_fraction if exclude_highly_expressed else None
    totals, median, excluded = _zheng17.cell_totals(_source(x, adata, layer), max_fraction_wanted)
    target = median if target_sum is None else float(target_sum)
    if target is None:
        raise ValueError("every count is 0, so there is no median to scale cells to; target_sum= gives a target")
    if excluded is not None and excluded.any():
        log.info("genes that are left out of totals: %s", ", ".join(map(str, adata.var_names[excluded])))
    has_counts = totals > 0
    if not has_counts.all():
        warnings.warn("Some cells have zero counts", UserWarning, stacklevel=2)
    factors = np.divide(target, totals, out=np.ones_like(totals), where=has_counts)
    rows = _matrix.contiguous(x.indptr) if _matrix.is_sparse(x) else x.shape[1]
    new = _with_values(x, _zheng17.scale_cells(_values(x), rows, factors))
    norm_factor = (totals / target).astype(x.dtype)
    if not inplace:
        return {"X": new, "norm_factor": norm_factor}
    return _changed(adata, copy, x=new, layer=layer, obs={} if key_added is None else {key_added: norm_factor})


def log1p(
    data,
    *,
    base: float | None = None,
    copy: bool = False,
    chunked: bool | None = None,
    chunk_size: int | None = None,
    layer: str | None = None,
    obsm: str | None = None,
):
    """Take log(1 + x), to the natural base or another.

    Parameters
    ----------
    data
        AnnData, or a matrix of cells x genes.
    base
        The base of the logarithm; e if not given.
    layer
        The layer to change, instead of X.
    chunked, chunk_size, obsm
        Not here: scanpy has them.

    Returns
    -------
    A new matrix for a matrix. For AnnData, ``uns["log1p"]`` has the base.

    Examples
    --------
    >>> import numpy as np, zheng17.pp
    >>> zheng17.pp.log1p(np.array([[0.0, 1.0, 3.0]]), base=2).tolist()
    [[0.0, 1.0, 2.0]]
    """
    _refuse("log1p", chunked=(chunked or None, None), chunk_size=(chunk_size, None), obsm=(obsm, None))
    if base is not None and not (0 < base < np.inf and base != 1):
        raise ValueError(f"base must be positive, finite and not 1, not {base}")
    adata = data if _is_anndata(data) else None
    if adata is None and layer is not None:
        raise ValueError("layer= needs AnnData")
    x = data if adata is None else _matrix_of(adata, "log1p", layer)
    if adata is not None and "log1p" in adata.uns:
        log.warning('uns["log1p"] says that these values are logarithms already')
    x = _float(x, np.float64, _name(layer))
    if _matrix.is_sparse(x):
        x = _without_duplicates(x if x.format in ("csr", "csc") else x.tocsr())
    new = _with_values(x, _zheng17.log1p_values(_values(x), None if base is None else float(base)))
    if adata is None:
        return new
    return _changed(adata, copy, x=new, layer=layer, uns={"log1p": {"base": base}})


def highly_variable_genes(
    adata,
    *,
    layer: str | None = None,
    n_top_genes: int | None = None,
    min_disp: float = 0.5,
    max_disp: float = np.inf,
    min_mean: float = 0.0125,
    max_mean: float = 3,
    span: float = 0.3,
    n_bins: int = 20,
    flavor: Literal["cell_ranger"] = _UNSET,
    subset: bool = False,
    inplace: bool = True,
    batch_key: str | None = None,
    filter_unexpressed_genes: bool | None = None,
    check_values: bool = True,
    absolute: bool = False,
) -> pd.DataFrame | None:
    """Find genes whose dispersion is high among genes of similar mean, as Cell Ranger does: ``flavor="cell_ranger"``.

    Parameters
    ----------
    adata
        Normalised values, cells x genes, not negative; logarithms or not.
    layer
        The layer with the values, instead of X.
    n_top_genes
        How many genes. Ties with the last are all taken, unless ``absolute``.
    min_disp, max_disp, min_mean, max_mean
        Limits of score and mean, without ``n_top_genes``.
    flavor
        Must be given, and be ``"cell_ranger"``. scanpy has the others, one of which is its default.
    subset
        Whether ``adata`` keeps only these genes.
    inplace
        Whether ``adata`` gets the columns, instead of returning them.
    filter_unexpressed_genes
        Whether genes that are in no cell are left out.
    absolute
        Not in scanpy: whether to choose as :func:`zheng17.recipe_zheng17` does, by the absolute value of the score, and exactly
        ``n_top_genes``, ties by gene order.
    batch_key, n_bins, span, check_values
        Not here: scanpy has them for other flavors.

    Returns
    -------
    DataFrame | None
        ``means``, ``dispersions``, ``dispersions_norm``, ``highly_variable`` of each gene: with ``inplace=False`` as a table, else
        as columns of ``var``; ``uns["hvg"]`` has the flavor.

    Raises
    ------
    ValueError
        For values that are negative or not finite, naming cell and gene; if no gene has a score.

    Examples
    --------
    >>> import anndata, numpy as np, zheng17.pp
    >>> adata = anndata.AnnData(np.random.default_rng(0).poisson(1.0, (100, 500)).astype(np.float32))
    >>> zheng17.pp.highly_variable_genes(adata, n_top_genes=20, flavor="cell_ranger")
    >>> int(adata.var["highly_variable"].sum())
    20
    """
    if flavor != "cell_ranger":
        asked = "scanpy's default" if flavor is _UNSET else repr(flavor)
        raise ValueError(
            f'here is flavor="cell_ranger" only, not {asked}; scanpy.pp.highly_variable_genes has the others'
        )
    _refuse("highly_variable_genes", batch_key=(batch_key, None), n_bins=(n_bins, 20))
    _refuse("highly_variable_genes", span=(span, 0.3), check_values=(check_values, True))
    limits = (min_disp, max_disp, min_mean, max_mean)
    if n_top_genes is not None:
        if n_top_genes < 1:
            raise ValueError(f"n_top_genes must be 1 or more, not {n_top_genes}")
        if limits != (0.5, np.inf, 0.0125, 3):
            warnings.warn("With n_top_genes, min_disp, max_disp, min_mean and max_mean are ignored", stacklevel=2)
    elif absolute:
        raise ValueError("absolute=True needs n_top_genes")
    if adata.n_obs < 2:
        raise ValueError(f"a variance needs two cells, not {adata.n_obs}")
    x = _matrix_of(adata, "highly_variable_genes", layer)
    found = _zheng17.gene_statistics(_source(x, adata, layer), True)
    used = found["n_positive"] > 0 if filter_unexpressed_genes else np.ones(adata.n_vars, dtype=bool)
    if not used.any():
        raise ValueError("no gene has a value above 0 in any cell")
    means = np.where(found["means"] == 0, 1e-12, found["means"])[used]
    n_top = None if n_top_genes is None else min(int(n_top_genes), int(used.sum()))
    scored = _zheng17.score_genes(means, found["variances"][used], n_top, absolute)
    scores = scored["scores"]
    selected = scored["selected"]
    if n_top_genes is None:
        known = np.nan_to_num(scores)
        selected = (means > min_mean) & (means < max_mean) & (known > min_disp) & (known < max_disp)
    for warning in scored["warnings"]:
        warnings.warn(warning, UserWarning, stacklevel=2)
    columns = {"means": means, "dispersions": scored["dispersions"], "dispersions_norm": scores}
    table = pd.DataFrame(0.0, index=adata.var_names, columns=list(columns))
    for name, values in columns.items():
        table.iloc[used, table.columns.get_loc(name)] = values
    flags = np.zeros(adata.n_vars, dtype=bool)
    flags[used] = selected
    table["highly_variable"] = flags
    if not inplace:
        return table[flags] if subset else table
    var = {"highly_variable": flags} | {name: table[name].to_numpy() for name in columns}
    var["dispersions_norm"] = var["dispersions_norm"].astype(np.float32)
    _changed(adata, False, var=var, uns={"hvg": {"flavor": flavor}}, genes=flags if subset else None)
    return None


def scale(
    data,
    *,
    zero_center: bool = True,
    max_value: float | None = None,
    copy: bool = False,
    layer: str | None = None,
    obsm: str | None = None,
    mask_obs=None,
):
    """Centre each gene and divide it by its standard deviation (ddof 1). Genes without deviation become 0.

    Parameters
    ----------
    data
        AnnData, or a matrix of cells x genes.
    zero_center
        Whether to centre. What was sparse is dense then; without, it stays sparse.
    max_value
        The largest value; centred values are clipped on both sides.
    layer
        The layer to scale, instead of X.
    obsm
        Not here: scanpy has it.
    mask_obs
        Only for these cells: a boolean array, or a column of ``obs``. The others stay as they are.

    Returns
    -------
    A new matrix for a matrix. For AnnData, ``var["mean"]`` and ``var["std"]`` have what each gene was before; with ``mask_obs``
    these are ``var["mean of NAME"]`` and ``var["std of NAME"]``, or ``var["mean with mask"]`` and ``var["std with mask"]``.

    Examples
    --------
    >>> import anndata, numpy as np, zheng17.pp
    >>> adata = anndata.AnnData(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]))
    >>> zheng17.pp.scale(adata)
    >>> adata.X.tolist()
    [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    """
    _refuse("scale", obsm=(obsm, None))
    adata = data if _is_anndata(data) else None
    if adata is None and layer is not None:
        raise ValueError("layer= needs AnnData")
    x = data if adata is None else _matrix_of(adata, "scale", layer)
    names = ("mean", "std")
    if mask_obs is not None:
        names = tuple(f"{name} of {mask_obs}" if isinstance(mask_obs, str) else f"{name} with mask" for name in names)
        mask_obs = _mask(mask_obs, None if adata is None else adata.obs, x.shape[0], "mask_obs")
    x = _rows(_float(x, np.float64, _name(layer)))
    some = x if mask_obs is None else x[mask_obs]
    source = _source(some, None if mask_obs is not None else adata, layer)
    if some.shape[0] < 2:
        raise ValueError(f"a standard deviation needs two cells, not {some.shape[0]}")
    found = _zheng17.gene_statistics(source, False)
    mean, std = found["means"], np.sqrt(found["variances"])
    std[std == 0] = 1
    if max_value is not None and not max_value >= 0:
        raise ValueError(f"max_value must not be negative, but is {max_value}")
    if _matrix.is_sparse(some) and not zero_center:
        genes = _matrix.contiguous(some.indices[: some.nnz])
        new = _with_values(some, _zheng17.divide_genes(_values(some), genes, std, max_value))
    else:
        float64 = x.dtype == np.float64
        if zero_center:
            new = _zheng17.standardise(source, mean, std, max_value, float64)
        else:
            new = _zheng17.standardise(source, np.zeros_like(mean), std, None, float64)
            if max_value is not None:
                np.minimum(new, max_value, out=new)
    if mask_obs is not None:
        new = _replaced(x, mask_obs, new)
    if adata is None:
        return new
    return _changed(adata, copy, x=new, layer=layer, var=dict(zip(names, (mean, std), strict=True)))


def pca(
    data,
    n_comps: int | None = None,
    *,
    layer: str | None = None,
    obsm: str | None = None,
    zero_center: bool = True,
    svd_solver: str | None = None,
    chunked: bool = False,
    chunk_size: int | None = None,
    random_state: Any = 0,
    return_info: bool = False,
    mask_var: Any = _UNSET,
    use_highly_variable: bool | None = None,
    dtype: Any = "float32",
    key_added: str | None = None,
    copy: bool = False,
):
    """Principal components of all cells, exact, from the products of genes.

    The sign of a component is such that its largest loading is positive. At most 10,000 genes are taken.

    Parameters
    ----------
    data
        AnnData, or a matrix of cells x genes.
    n_comps
        How many components; 50, or one less than there are cells or genes, if not given.
    layer
        The layer to use, instead of X.
    svd_solver
        Any exact solver of scanpy: they all mean the one that there is.
    random_state
        Nothing here is random.
    return_info
        For a matrix: whether to return loadings, ratios and variances too.
    mask_var
        The genes to use: a boolean array or a column of ``var``; ``None`` for all. If not given, ``var["highly_variable"]`` if
        there is one. ``use_highly_variable`` is the older way to say so.
    dtype
        The number type of scores, which are computed in 64 bits and kept in 32.
    key_added
        The name of the results, instead of the three below.
    zero_center, obsm, chunked, chunk_size
        Not here: scanpy has them.

    Returns
    -------
    For a matrix the scores, cells x components; with ``return_info`` a tuple of scores, loadings (components x genes), variance
    ratios and variances. AnnData gets ``obsm["X_pca"]`` (scores), ``varm["PCs"]`` (loadings, genes x components, 0 for genes that
    are not used), and ``uns["pca"]`` with ``variance``, ``variance_ratio`` and ``params``.

    Raises
    ------
    ValueError
        For more components than min(cells, genes) - 1; for values that are not finite, naming the gene.

    Examples
    --------
    >>> import anndata, numpy as np, zheng17.pp
    >>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(100, 20)))
    >>> zheng17.pp.pca(adata, n_comps=5)
    >>> adata.obsm["X_pca"].shape, adata.varm["PCs"].shape
    ((100, 5), (20, 5))
    """
    solvers = (None, "auto", "full", "arpack", "covariance_eigh")
    if svd_solver not in solvers:
        known = ", ".join(map(repr, solvers[1:]))
        raise ValueError(f"svd_solver={svd_solver!r} is no exact solver; scanpy.pp.pca has it. Here are {known}")
    _refuse("pca", obsm=(obsm, None), zero_center=(bool(zero_center), True), chunked=(bool(chunked), False))
    _refuse("pca", chunk_size=(chunk_size, None))
    adata = data if _is_anndata(data) else None
    if adata is None and layer is not None:
        raise ValueError("layer= needs AnnData")
    x = data if adata is None else _matrix_of(adata, "pca", layer)
    if use_highly_variable is not None:
        if mask_var is not _UNSET:
            raise ValueError("use_highly_variable and mask_var say the same thing; mask_var is the newer one")
        mask_var = "highly_variable" if use_highly_variable else None
    if mask_var is _UNSET:
        mask_var = "highly_variable" if adata is not None and "highly_variable" in adata.var else None
    mask = None if mask_var is None else _mask(mask_var, None if adata is None else adata.var, x.shape[1], "mask_var")
    _matrix.check(x, _name(layer))
    x = _without_duplicates(x) if _matrix.is_sparse(x) else np.asarray(x)
    used = x if mask is None else x[:, mask]
    if n_comps is None:
        n_comps = min(_N_COMPS, min(used.shape) - 1)
    if n_comps < 1:
        raise ValueError(f"{n_comps} principal components of {used.shape[0]} cells x {used.shape[1]} genes")
    gene_names = None if adata is None else adata.var_names[slice(None) if mask is None else mask]
    source = _matrix.source(used, name=_name(layer), gene_names=gene_names)
    found = _zheng17.principal_components(source, int(n_comps))
    scores = found["scores"].astype(dtype, copy=False)
    if adata is None:
        if return_info:
            return scores, found["loadings"].T, found["variance_ratio"], found["variance"]
        return scores
    loadings = found["loadings"]
    if mask is not None:
        loadings = np.zeros((adata.n_vars, int(n_comps)))
        loadings[mask] = found["loadings"]
    params = {"zero_center": True, "use_highly_variable": isinstance(mask_var, str) and mask_var == "highly_variable"}
    params["mask_var"] = mask_var
    if layer is not None:
        params["layer"] = layer
    about = {"params": params, "variance": found["variance"], "variance_ratio": found["variance_ratio"]}
    in_obsm, in_varm, in_uns = ("X_pca", "PCs", "pca") if key_added is None else (key_added,) * 3
    return _changed(adata, copy, obsm={in_obsm: scores}, varm={in_varm: loadings}, uns={in_uns: about})


def _is_anndata(data) -> bool:
    import anndata

    return isinstance(data, anndata.AnnData)


def _matrix_of(adata, step: str, layer: str | None = None):
    """X or a layer, if it is in memory."""
    from zheng17._anndata import counts_of

    if not _is_anndata(adata):
        raise TypeError(f"AnnData is expected, not {type(adata).__name__}")
    if adata.isbacked and layer is None:
        raise NotImplementedError(
            f"{step} changes values in memory, and this X is in a file: adata.to_memory() loads it; "
            "zheng17.recipe_zheng17 and zheng17.run read the file a few cells at a time"
        )
    x = counts_of(adata, layer)
    if type(x).__module__.split(".")[0] == "dask":
        raise NotImplementedError(
            f"{step} works in memory, and this X is Dask's: zheng17.recipe_zheng17 takes it for the whole recipe, "
            f"scanpy.pp.{step} for this step"
        )
    return x


def _source(x, adata=None, layer: str | None = None) -> _zheng17.Source:
    if adata is None:
        return _matrix.source(x)
    return _matrix.source(x, name=_name(layer), cell_names=adata.obs_names, gene_names=adata.var_names)


def _name(layer: str | None) -> str:
    return "X" if layer is None else f"layers[{layer!r}]"


def _refuse(step: str, **parameters) -> None:
    """Refuses parameters that don't have the one value they can have here."""
    for name, (value, only) in parameters.items():
        if value != only:
            raise ValueError(f"{name}={value!r} does not apply here; scanpy.pp.{step} has it")


def _float(x, for_integers: type, name: str):
    """Values as floats of 32 or 64 bits; what else is of ``for_integers``. Dense matrices as arrays, sparse ones checked."""
    if not _matrix.is_sparse(x) and not isinstance(x, np.ma.MaskedArray):
        x = np.asarray(x)
    _matrix.check(x, name)
    dtype = np.dtype(x.dtype)
    if dtype.kind == "f":
        return x.astype(np.float64 if dtype.itemsize > 4 else np.float32, copy=False)
    if dtype.kind in "iub":
        return x.astype(for_integers)
    raise TypeError(f"numbers are expected, not values of type {dtype}")


def _rows(x):
    """Compressed rows where sparse, without duplicates; dense as it is."""
    if not _matrix.is_sparse(x):
        return x
    return _without_duplicates(x if x.format == "csr" else x.tocsr())


def _without_duplicates(x):
    if x.format not in ("csr", "csc"):
        return x.tocsr()
    if not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()
    return x


def _values(x) -> np.ndarray:
    """The values in one row: what is stored, or all of a dense matrix."""
    return _matrix.contiguous(x.data[: x.nnz] if _matrix.is_sparse(x) else x.reshape(-1))


def _with_values(x, values: np.ndarray):
    """A matrix like ``x`` with other values. It shares nothing with ``x``."""
    if not _matrix.is_sparse(x):
        return values.reshape(x.shape)
    return _matrix.class_of(x)((values.reshape(-1), x.indices[: x.nnz].copy(), x.indptr.copy()), shape=x.shape)


def _replaced(x, mask: np.ndarray, rows):
    """A matrix like ``x`` with other rows where the mask is."""
    if _matrix.is_sparse(rows):
        from scipy import sparse

        order = np.argsort(np.r_[np.flatnonzero(mask), np.flatnonzero(~mask)])
        return _matrix.class_of(x)(sparse.vstack([rows, x[~mask]], format="csr")[order])
    whole = x.toarray() if _matrix.is_sparse(x) else x.copy()
    whole[mask] = rows
    return whole


def _mask(mask, table, length: int, name: str) -> np.ndarray:
    if isinstance(mask, str):
        if table is None or mask not in table:
            raise ValueError(f"{name}={mask!r}: there is no such column")
        mask = table[mask].to_numpy()
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != (length,):
        raise ValueError(f"{name} must be {length} booleans")
    return mask


def _changed(
    adata,
    copy: bool,
    *,
    x=None,
    layer: str | None = None,
    obs: Mapping = _NOTHING,
    var: Mapping = _NOTHING,
    uns: Mapping = _NOTHING,
    obsm: Mapping = _NOTHING,
    varm: Mapping = _NOTHING,
    genes=None,
):
    """Puts results where they belong: into a copy, or into the object. Until here, nothing of it was touched."""
    if adata.is_view and not copy:
        warnings.warn("this is a view of an AnnData; it becomes an object of its own", UserWarning, stacklevel=3)
    if genes is not None:
        new = adata[:, genes].copy()
        var = {key: values[genes] for key, values in var.items()}
    else:
        new = adata.copy() if copy or adata.is_view else adata
    if x is not None:
        if layer is None:
            new.X = x
        else:
            new.layers[layer] = x
    for to, values in ((new.obs, obs), (new.var, var), (new.obsm, obsm), (new.varm, varm), (new.uns, uns)):
        for key, value in values.items():
            to[key] = value
    if copy:
        return new
    if new is not adata:
        adata._init_as_actual(new)
    return None
