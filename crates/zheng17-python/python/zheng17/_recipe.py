"""The recipe on AnnData: scanpy's signature, and results where scanpy puts them."""

from __future__ import annotations

from collections.abc import Callable

from zheng17 import _matrix, _parameters, _zheng17
from zheng17._anndata import check_anndata, counts_of, result_of, source_of
from zheng17._files import tell
from zheng17._progress import check_progress, reporter


def recipe_zheng17(
    adata,
    n_top_genes: int = 1000,
    log: bool = True,
    plot: bool = False,
    copy: bool = False,
    *,
    version: str = "exact",
    backend: str = "auto",
    n_comps: int | None = None,
    layer: str | None = None,
    threads: int | None = None,
    progress: bool | Callable[[str, int, int], object] | None = None,
):
    """Normalise and select genes as Zheng et al. (2017) did: scanpy's ``pp.recipe_zheng17``.

    Removes genes without counts, normalises cells to their median total, keeps the genes of highest normalised dispersion,
    normalises again, takes log(1 + x) and scales each gene to mean 0 and variance 1.

    Parameters
    ----------
    adata
        Counts, cells x genes: X may be a CSR, CSC or other sparse matrix or array of scipy, a dense array, in a file (backed; it is
        read a few cells at a time and never loaded), or in chunks of Dask (see :mod:`zheng17.dask`). Any number type.
    n_top_genes
        How many genes to keep.
    log
        Whether to take log(1 + x).
    plot
        Whether to draw dispersion against mean, with the genes that are kept. Needs matplotlib.
    copy
        Whether to return a new object, and leave ``adata`` as it is.
    version
        ``"exact"``: sums without rounding, exactly ``n_top_genes`` genes, ties by gene order. ``"scanpy-1.12"``, ``"scanpy-1.4"``,
        ``"scanpy-main"``: the genes that those releases pick, with their rounding.
    backend
        ``"auto"``: in memory if it fits, else out of core. Or one of :func:`zheng17.backends`.
    n_comps
        Also compute that many principal components, of all cells and exactly.
    layer
        The layer that has the counts; X if not given. The result goes to X.
    threads
        How many threads to use, at most 1,024; all processors that the process may use if not given. It never changes the result.
    progress
        ``True`` for bars of tqdm, or a function that is called with the name of the pass, the cells that are done and all cells.

    Returns
    -------
    AnnData | None
        A new object with ``copy``, else nothing: ``adata`` has the result.

        - ``X``: the scaled genes, dense, cells x selected genes; float64 if the counts were, else float32
        - ``obs["n_counts_all"]``: the total of each cell
        - ``var["n_counts", "means", "dispersions", "dispersions_norm", "mean", "std"]`` of each selected gene: total; mean and
          dispersion after normalising; score; mean and standard deviation before scaling
        - ``obsm["X_pca"]``, ``varm["PCs"]``, ``uns["pca"]`` with ``n_comps``
        - ``uns["log1p"]``, which is removed with ``log=False``
        - ``uns["zheng17"]``: version, parameters, target sums, digest of the sums

    Raises
    ------
    ValueError
        For counts that are negative or not finite, naming cell and gene; for parameters that make no sense. ``adata`` is as it was.

    TypeError
        For parameters and matrices of another type; for what is no AnnData.

    Notes
    -----
    While it computes, other threads run. None of them may work on the same object: it is read meanwhile, and changed at the end.

    Examples
    --------
    >>> import anndata, numpy as np, zheng17
    >>> counts = np.random.default_rng(0).poisson(1.0, (100, 500)).astype(np.float32)
    >>> adata = anndata.AnnData(counts)
    >>> zheng17.recipe_zheng17(adata, n_top_genes=50)
    >>> adata.shape
    (100, 50)
    """
    check_anndata(adata)
    asked = _parameters.recipe(n_top_genes=n_top_genes, log=log, version=version, n_comps=n_comps)
    backend, threads = _parameters.text("backend", backend), _parameters.threads(threads)
    check_progress(progress)
    if _matrix.is_dask(counts_of(adata, layer)):
        from zheng17 import dask

        if backend != "auto" or threads is not None or progress:
            raise ValueError(
                "the counts are a Dask array: its workers compute with the threads they were given, and Dask's dashboard or "
                "dask.diagnostics.ProgressBar show how far they are; backend, threads and progress are for matrices in memory"
            )
        return dask.recipe_zheng17(
            adata, n_top_genes, log, plot, copy, version=version, n_comps=n_comps, layer=layer, _stacklevel=3
        )
    source, float64 = source_of(adata, layer)
    with reporter(progress) as report:
        result = _zheng17.recipe(
            source,
            **asked,
            backend=backend,
            threads=threads,
            memory=None,
            chunk_rows=None,
            values="scaled",
            float64=float64,
            progress=report,
        )
    if plot:
        from zheng17._plot import plot_dispersions

        plot_dispersions(result)
    parameters = {key: asked[key] for key in ("n_top_genes", "log")} | {"n_components": asked["n_comps"], "layer": layer}
    new = result_of(adata, result, parameters, copy=copy)
    tell(result, stacklevel=2)
    if copy:
        return new
    # The one change of the object: until here, nothing of it was touched.
    adata._init_as_actual(new)
    return None
