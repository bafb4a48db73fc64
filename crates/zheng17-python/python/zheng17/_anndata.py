"""AnnData: where its counts are, and a new object with the result of the recipe. Touches no object that it is given."""

from __future__ import annotations

import copy as copying
import os
from collections.abc import Mapping

import numpy as np

from zheng17 import _matrix
from zheng17._zheng17 import Source, __version__


def check_anndata(adata) -> None:
    """Refuses what is no AnnData.

    Raises
    ------
    TypeError
        If it isn't one.
    """
    import anndata

    if isinstance(adata, anndata.AnnData):
        return
    advice = ""
    if isinstance(adata, (str, os.PathLike)):
        advice = "; zheng17.run takes paths of files"
    elif getattr(adata, "ndim", None) == 2:
        advice = "; anndata.AnnData(matrix) makes one"
    raise TypeError(f"adata must be an AnnData, not {type(adata).__name__}{advice}")


def counts_of(adata, layer: str | None):
    """The matrix of counts: X, or a layer.

    Raises
    ------
    ValueError
        If there is none.
    """
    if layer is not None:
        if layer not in adata.layers:
            # Newer AnnData lists X among the layers, without a name.
            there = ", ".join(str(name) for name in adata.layers if name is not None)
            raise ValueError(f"there is no layer {layer!r}; " + (f"there is {there}" if there else "adata has no layers"))
        return adata.layers[layer]
    if adata.X is None:
        raise ValueError("adata has no X; layer= chooses one of its layers")
    return adata.X


def source_of(adata, layer: str | None) -> tuple[Source, bool]:
    """A source over the counts, and whether the result is to have 64 bits. A backed X is read from its file.

    Raises
    ------
    ValueError
        If there are no counts; for a view of a backed object, which has no file of its own.
    """
    counts = counts_of(adata, layer)
    if adata.isbacked and layer is None:
        if adata.is_view:
            raise ValueError(
                "this is a view of a backed AnnData, whose cells and genes no file has by themselves: "
                "adata.to_memory() loads them, zheng17.run reads a whole file"
            )
        # What was written and not yet put into the file would not be seen.
        adata.file._file.flush()
        source = Source.file(_path_of_backed(adata))
        if source.shape != adata.shape:
            raise ValueError(
                f"{adata.filename}: the file has {source.shape[0]} cells x {source.shape[1]} genes, but the AnnData that it "
                f"backs has {adata.n_obs} x {adata.n_vars}"
            )
        return source, np.dtype(counts.dtype) == np.float64
    name = "X" if layer is None else f"layers[{layer!r}]"
    source = _matrix.source(counts, name=name, cell_names=adata.obs_names, gene_names=adata.var_names)
    return source, _matrix.has_float64(counts)


def _path_of_backed(adata) -> str:
    """The path of the very file that the object has open: another may be at its path by now.

    Raises
    ------
    ValueError
        If it isn't found any more.
    """
    path = os.fspath(adata.filename)
    try:
        handle = adata.file._file.id.get_vfd_handle()
        opened = os.fstat(handle)
    except (OSError, TypeError, ValueError, NotImplementedError):
        # Not every way to open a file has a handle of the system.
        return path
    candidates = [path]
    try:
        # A path that was given relative to another folder.
        candidates.append(os.readlink(f"/proc/self/fd/{handle}"))
    except OSError:
        pass
    for candidate in candidates:
        try:
            if os.path.samestat(os.stat(candidate), opened):
                return candidate
        except OSError:
            continue
    raise ValueError(
        f"{path}: the file that backs this AnnData is not at its path any more: it was replaced or moved, or the path is "
        "relative to another folder; read it again"
    )


def result_of(adata, result: Mapping, parameters: Mapping, *, copy: bool):
    """A new object with the selected genes: ``result`` is what the recipe found out, with ``x`` and perhaps ``pca_*``.

    Everything of ``adata`` but X goes with it: for the selected genes, and for the cells in the result, where a version drops some.
    Without ``copy`` what does not change is shared with ``adata``.
    """
    import anndata

    genes = result["selected"]
    cells = result["cells"] if len(result["cells"]) < adata.n_obs else None
    same = _same if copy or adata.is_view or cells is not None else (lambda value: value)

    def of_cells(value):
        return same(value) if cells is None else _rows(value, cells)

    def of_cell_pairs(value):
        return same(value) if cells is None else value[cells][:, cells]

    obs = adata.obs.copy() if cells is None else adata.obs.iloc[cells].copy()
    obs["n_counts_all"] = result["n_counts_all"]
    var = adata.var.iloc[genes].copy()
    among_kept = result["selected_among_kept"]
    var["n_counts"] = result["gene_totals"][genes]
    var["means"] = result["means"][among_kept]
    var["dispersions"] = result["dispersions"][among_kept]
    var["dispersions_norm"] = result["scores"][among_kept]
    var["mean"] = result["mean"]
    var["std"] = result["std"]
    raw = adata.raw
    new = anndata.AnnData(
        X=result["x"],
        obs=obs,
        var=var,
        uns=copying.deepcopy(dict(adata.uns)) if copy or adata.is_view else dict(adata.uns),
        obsm={key: of_cells(value) for key, value in _items(adata.obsm)},
        varm={key: _rows(value, genes) for key, value in _items(adata.varm)},
        layers={key: of_cells(value)[:, genes] for key, value in _items(adata.layers)},
        obsp={key: of_cell_pairs(value) for key, value in _items(adata.obsp)},
        varp={key: value[genes][:, genes] for key, value in _items(adata.varp)},
        raw=None if raw is None else {"X": of_cells(_plain(raw.X)), "var": raw.var, "varm": dict(raw.varm)},
    )
    if result["logged"]:
        new.uns["log1p"] = {"base": None}
    else:
        # What it says of the counts that came in is not true of the result.
        new.uns.pop("log1p", None)
    if "pca_scores" in result:
        new.obsm["X_pca"] = result["pca_scores"]
        new.varm["PCs"] = result["pca_loadings"]
        new.uns["pca"] = {
            "params": {"zero_center": True},
            "variance": result["pca_variance"],
            "variance_ratio": result["pca_variance_ratio"],
        }
    new.uns["zheng17"] = {
        "version": result["version"],
        "parameters": {key: value for key, value in parameters.items() if value is not None},
        "backend": result["backend"],
        "program": f"zheng17 {__version__}",
        "n_cells": adata.n_obs,
        "n_genes": adata.n_vars,
        "n_kept_genes": len(result["kept_genes"]),
        "target_sum": result["target_sum"],
        "hvg_target_sum": result["hvg_target_sum"],
        "summary_sha256": result["digest"],
        "warnings": np.array(result["warnings"], dtype=object),
    }
    return new


def _rows(value, rows):
    return value.iloc[rows].copy() if hasattr(value, "iloc") else value[rows]


def _same(value):
    return value.copy() if hasattr(value, "copy") else copying.copy(value)


def _items(aligned: Mapping):
    """What is in one of AnnData's places, with names. Newer AnnData lists X among the layers, without a name."""
    return ((key, _plain(value)) for key, value in aligned.items() if key is not None)


def _plain(value):
    """What this is a view of, or what a file has: a plain matrix or array in memory."""
    if hasattr(value, "to_memory"):
        return value.to_memory()
    if type(value).__module__.startswith("h5py."):
        return value[()]
    if _matrix.is_sparse(value):
        plain = _matrix.class_of(value)
        return value if type(value) is plain else plain(value)
    return np.asarray(value) if isinstance(value, np.ndarray) else value
