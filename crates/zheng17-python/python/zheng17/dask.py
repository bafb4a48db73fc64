"""The recipe on Dask: matrices in row chunks, on one machine or many. The only module that knows Dask.

Workers sum up chunks, sums are merged by tree, the plan is made on the client, and the result is a lazy array. The
matrix stays where it is: what travels is a few numbers for each gene and each cell.

===========================  ==========================================================================================
:func:`recipe_zheng17`       the recipe on an AnnData whose counts are a Dask array
:func:`read`                 a file of counts as such an AnnData; workers read it by its path
===========================  ==========================================================================================
"""

from __future__ import annotations

import functools
import logging
import os
import re
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from zheng17 import _matrix, _parameters, _zheng17
from zheng17._anndata import check_anndata, counts_of, result_of
from zheng17._chunks import ChunkPlan, Components, Gram, Plan, SelectedCells, plan_from
from zheng17._files import tell
from zheng17._zheng17 import Moments, Source, Summary

try:
    import dask
    import dask.array as da
    from dask.array.core import getter
    from dask.base import get_scheduler, tokenize
    from dask.blockwise import Blockwise
    from dask.highlevelgraph import HighLevelGraph
except ImportError as error:
    raise ImportError("zheng17.dask needs Dask: pip install \"./crates/zheng17-python[dask]\" from a checkout") from error

log = logging.getLogger("zheng17")

#: Summaries that are merged in one task.
_MERGED_AT_ONCE = 8

#: More chunks of genes are refused: each would be a task for each chunk of cells.
_MOST_GENE_CHUNKS = 1000

#: A chunk of all genes must fit into this share of a worker's memory.
_SHARE_OF_MEMORY = 1 / 4

#: Where nothing is stored yet that could be counted: of sparse counts, one in so many is not zero, and takes so many
#: bytes.
_ONE_STORED_IN, _STORED_BYTES = 10, 12

#: What :func:`read` made, by the name of the array: its chunks can be read without a matrix in between.
_files: dict[str, _File] = {}


def recipe_zheng17(
    adata,
    n_top_genes: int = 1000,
    log: bool = True,
    plot: bool = False,
    copy: bool = False,
    *,
    version: str = "exact",
    n_comps: int | None = None,
    layer: str | None = None,
    client=None,
    keep: bool | None = None,
    _stacklevel: int = 2,
):
    """Run :func:`zheng17.recipe_zheng17` on counts in chunks of Dask, which that function does by itself on seeing
    them.

    Three small reductions are computed: sums over all genes, totals over the selected genes, their moments (and sums of
    products with ``n_comps``). The rest is lazy.

    Parameters
    ----------
    adata
        X, or the layer, is a Dask array of cells x genes. Its chunks are sparse matrices or arrays of scipy, or dense.
        Chunks of cells are as they come; chunks of genes are put together first.
    n_top_genes, log, plot, copy, n_comps, layer
        As in :func:`zheng17.recipe_zheng17`.
    version
        As there, but ``"scanpy-1.4"``, whose sums need all cells in order.
    client
        A ``distributed.Client``. If not given, what Dask would use: the current client, or a scheduler of this machine.
    keep
        Whether workers keep the counts of selected genes, 5 to 15 % of all, in memory (a cluster writes them to disk if
        there is too little). If not, they are selected again for each use. If not given: with a client yes, else no.

    Returns
    -------
    AnnData | None
        As :func:`zheng17.recipe_zheng17`, with ``X`` and ``obsm["X_pca"]`` lazy Dask arrays in the chunks of the
        counts; a column of ``X`` is computed without the others. The bits are those of :func:`zheng17.recipe_zheng17`
        on the matrix in memory, whatever the chunks and workers; components agree to 1e-6, and have the same bits for
        the same chunks. ``adata.to_memory()`` computes all. anndata writes lazy arrays to zarr; chunks that a cluster
        keeps can't be written by ``write_h5ad``: use ``to_memory()`` first, ``keep=False`` or ``write_zarr``.

    Raises
    ------
    ValueError
        For counts that are negative or not finite, naming cell and gene; for parameters that make no sense; for chunks
        of genes that can't be put together in memory.
    NotImplementedError
        For ``"scanpy-1.4"``.

    Examples
    --------
    >>> import anndata, dask.array as da, numpy as np, zheng17
    >>> counts = np.random.default_rng(0).poisson(1.0, (100, 500)).astype(np.float32)
    >>> adata = anndata.AnnData(da.from_array(counts, chunks=(30, 500)))
    >>> zheng17.recipe_zheng17(adata, n_top_genes=50)
    >>> adata.X.chunksize
    (30, 50)
    """
    check_anndata(adata)
    # Parameters are looked at before anything is computed.
    asked = _parameters.recipe(n_top_genes=n_top_genes, log=log, version=version, n_comps=n_comps)
    n_top_genes, log, n_comps = asked["n_top_genes"], asked["log"], asked["n_comps"]
    if keep is not None:
        keep = _parameters.flag("keep", keep)
    counts = counts_of(adata, layer)
    if not isinstance(counts, da.Array):
        raise TypeError(
            f"a Dask array is expected, not {type(counts).__name__}; zheng17.recipe_zheng17 takes the others"
        )
    if not hasattr(counts, "to_delayed"):
        raise NotImplementedError(
            "arrays of Dask's experimental query planning have no graph to work on: "
            'dask.config.set({"array.query-planning": False}) before dask.array is imported'
        )
    name = "X" if layer is None else f"layers[{layer!r}]"
    _check_parameters(n_top_genes, log, version)
    for number, what in zip(counts.shape, ("cells", "genes"), strict=False):
        if number == 0:
            raise ValueError(f"{name}: there are no {what}")
    if n_comps is not None:
        _check_components(n_comps, adata.n_obs, min(n_top_genes, adata.n_vars))
    if isinstance(counts._meta, np.ma.MaskedArray):
        _matrix.check(counts._meta, name)
    engine = _Engine(client)
    cells = _Cells(_row_chunks(counts, name, engine), name)
    try:
        plan = engine.reduce(cells, None)
        plan = plan_from(plan, n_top_genes=n_top_genes, log=log, version=version)
        while plan.chunks.selected is None:
            plan = plan.after(engine.reduce(cells, plan.chunks))
        selected = cells.map(_select, plan.chunks, what="select")
        if keep or (keep is None and engine.is_cluster):
            selected = engine.persist(selected)
        kept = _Cells(selected, name)
        while not plan.ready:
            plan = plan.after(engine.reduce(kept, plan.chunks))
        result = plan.result | {"backend": "dask", "backend_reason": None, "notes": []}
        if n_comps is not None:
            _check_components(n_comps, plan.summary.n_cells, len(plan.chunks.selected))
            gram = engine.merge(kept.map(_gram, plan.chunks, what="products"), _merge_grams, what="products-merge")
            result |= _pca(selected, plan, plan.components(gram, n_comps))
    except ValueError as error:
        raise ValueError(_with_names(str(error), adata)) from error
    result["x"] = _scaled(selected, plan.chunks, np.dtype(counts.dtype) == np.float64)
    if plot:
        from zheng17._plot import plot_dispersions

        plot_dispersions(result)
    parameters = {"n_top_genes": n_top_genes, "log": log, "n_components": n_comps, "layer": layer}
    new = result_of(adata, result, parameters, copy=copy)
    tell(result, stacklevel=_stacklevel)
    if copy:
        return new
    adata._init_as_actual(new)
    return None


def read(
    path: str | os.PathLike,
    *,
    chunk_rows: int = 10_000,
    layer: str | None = None,
    raw: bool = False,
    genome: str | None = None,
    feature_type: str | None = None,
):
    """A file of counts as an AnnData whose X is a Dask array. Nothing but names is read.

    Each chunk is a task that knows path and rows; each process opens the file once. All workers must see it under this
    path.

    Parameters
    ----------
    path
        Any file that :func:`zheng17.run` reads. From h5ad files, ``obs`` and ``var`` come too.
    chunk_rows
        Cells in a chunk. Multiples of the file's own chunks of compression are read best.
    layer, raw, genome, feature_type
        As in :func:`zheng17.run`.

    Notes
    -----
    Matrix Market files have no order to rely on: each process keeps the whole matrix.

    Raises
    ------
    ValueError, OSError
        As :func:`zheng17.run`.
    """
    import anndata
    import pandas as pd

    chunk_rows = _parameters.whole("chunk_rows", chunk_rows)
    path = os.path.abspath(_parameters.path("path", path))
    choice = {"layer": layer, "raw": raw, "genome": genome, "feature_type": feature_type}
    file = _File(path, tuple(choice.items()), _stamp(path))
    source = file.source()
    n_cells, n_genes = source.shape
    float64 = False
    obs, var = pd.DataFrame(index=source.cell_names()), pd.DataFrame(index=source.gene_names())
    if _is_h5ad(path):
        import h5py

        with h5py.File(path, "r") as stored:
            # AnnData 0.10 has it in another place.
            read_elem = (anndata.io if hasattr(anndata, "io") else anndata.experimental).read_elem
            obs, var = read_elem(stored["obs"]), read_elem(stored["raw/var" if raw else "var"])
            matrix = stored["raw/X" if raw else "X" if layer is None else f"layers/{layer}"]
            float64 = (matrix["data"] if isinstance(matrix, h5py.Group) else matrix).dtype == np.float64
    rows = tuple(min(chunk_rows, n_cells - first) for first in range(0, n_cells, chunk_rows))
    dtype = np.dtype(np.float64 if float64 else np.float32)
    x = da.map_blocks(
        _read,
        file=file,
        dtype=dtype,
        chunks=(rows, (n_genes,)),
        meta=sparse.csr_matrix((0, n_genes), dtype=dtype),
        token="zheng17-read",
    )
    _files[x.name] = file
    return anndata.AnnData(X=x, obs=obs, var=var)


@dataclass(frozen=True)
class _File:
    """A file, as tasks know it: by names and numbers."""

    path: str
    choice: tuple
    #: Size and time of change: a file that changed is another one.
    stamp: tuple

    def source(self) -> Source:
        """The open file, one in each process.

        Raises
        ------
        ValueError
            If it changed: then chunks would be of different counts.
        """
        try:
            unchanged = _stamp(self.path) == self.stamp
        except FileNotFoundError:
            unchanged = False
        if not unchanged:
            raise ValueError(f"{self.path} is not the file any more that it was when zheng17.dask.read saw it")
        return _open(self)


def _file_of(array: da.Array) -> _File | None:
    """The file that an array is of, if it is still to be read: one that is in memory has the same name."""
    to_be_read = isinstance(array.dask.layers.get(array.name), Blockwise)
    return _files.get(array.name) if to_be_read else None


@functools.lru_cache(maxsize=4)
def _open(file: _File) -> Source:
    return Source.file(file.path, **dict(file.choice))


def _stamp(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _is_h5ad(path: str) -> bool:
    import h5py

    if not os.path.isfile(path) or not h5py.is_hdf5(path):
        return False
    with h5py.File(path, "r") as stored:
        return "obs" in stored and "var" in stored


class _Engine:
    """Where things are computed: a client, or what Dask uses by default."""

    def __init__(self, client):
        if client is None:
            # The scheduler of a cluster is a method of its client.
            owner = getattr(get_scheduler(), "__self__", None)
            client = owner if hasattr(owner, "scheduler_info") else None
        self.client = client

    @property
    def is_cluster(self) -> bool:
        return self.client is not None

    def persist(self, array: da.Array) -> da.Array:
        return self.client.persist(array) if self.is_cluster else dask.persist(array)[0]

    def reduce(self, cells: _Cells, plan: ChunkPlan | None) -> Summary | Moments:
        """What the plan asks of all chunks, merged."""
        what = "totals" if plan is None else plan.stage
        return self.merge(cells.map(_look, plan, what=what), _merge, what=f"{what}-merge")

    def merge(self, parts: da.Array, function, what: str):
        """Merges what there is of each chunk, as a tree of fixed shape. Only the end of it is kept."""
        level = list(parts.to_delayed().ravel())
        merge = dask.delayed(function, pure=True)
        depth = 0
        while len(level) > 1 or depth == 0:
            groups = [level[at : at + _MERGED_AT_ONCE] for at in range(0, len(level), _MERGED_AT_ONCE)]
            name = f"zheng17-{what}-{tokenize(parts.name, depth)}"
            level = [merge(group, dask_key_name=(name, at)) for at, group in enumerate(groups)]
            depth += 1
        return self.client.compute(level[0]).result() if self.is_cluster else level[0].compute()

    def memory(self) -> int | None:
        """The memory of the smallest worker, or of this machine, in bytes, if it is known."""
        if self.is_cluster:
            limits = [worker.get("memory_limit") for worker in self.client.scheduler_info()["workers"].values()]
            return min((limit for limit in limits if limit), default=None)
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, OSError, ValueError):
            return None


@dataclass(frozen=True)
class _Cells:
    """Chunks of cells: matrices, or what was selected of them."""

    array: da.Array
    #: For messages.
    name: str

    def map(self, function, plan: ChunkPlan | None, what: str) -> da.Array:
        """Does something with each chunk. What comes out is no array; nobody but us looks at it."""
        file = _file_of(self.array)
        rows = self.array.chunks[0]
        arguments = {"function": function, "plan": plan, "label": self.name, "file": file}
        return da.map_blocks(
            _with_chunk,
            *([] if file else [self.array]),
            **arguments,
            dtype=object,
            # Chunks of a file have their place from here.
            chunks=(rows, self.array.chunks[1]),
            meta=np.empty((0, 0), dtype=object),
            token=f"zheng17-{what}",
        )


def _with_chunk(block=None, *, function, plan, label, file, block_info=None):
    (first_cell, end), (_, n_genes) = block_info[None]["array-location"]
    if file is not None:
        block = file.source().part(first_cell, end)
    elif not isinstance(block, SelectedCells):
        _check_shape(block, (end - first_cell, n_genes), f"{label}: the chunk of cells {first_cell}..{end}")
        block = _matrix.source(block, name=label, first_cell=first_cell)
    return function(block, plan, first_cell)


def _check_shape(block, expected: tuple[int, int], what: str) -> None:
    """Refuses a chunk that is not what its array says."""
    found = getattr(block, "shape", None)
    if found is None or len(found) != 2:
        return
    for has, should, unit in zip(found, expected, ("cells", "genes"), strict=True):
        if has != should:
            raise ValueError(f"{what} has {has} {unit}, {should} expected")


def _look(cells, plan: ChunkPlan | None, first_cell: int):
    return _zheng17.summarize(cells) if plan is None else plan.look(cells, first_cell)


def _select(cells, plan: ChunkPlan, first_cell: int) -> SelectedCells:
    return plan.select(cells, first_cell)


def _gram(cells, plan: ChunkPlan, first_cell: int) -> Gram:
    return plan.gram(cells, first_cell)


def _merge(parts):
    return type(parts[0]).merge(parts)


def _merge_grams(parts):
    return Gram.merge(parts)


def _read(*, file: _File, block_info=None) -> sparse.csr_matrix:
    info = block_info[None]
    (first, end), (_, n_genes) = info["array-location"]
    indptr, indices, data = _zheng17.select(file.source().part(first, end))
    matrix = sparse.csr_matrix((end - first, n_genes), dtype=data.dtype)
    # Scipy wants both of the same type.
    if len(data) <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    else:
        indices = indices.astype(np.int64)
    matrix.indptr, matrix.indices, matrix.data = indptr, indices, data.astype(info["dtype"], copy=False)
    return matrix


@dataclass(frozen=True, eq=False)
class _ScaledCells:
    """The scaled values of a chunk, not computed: what is asked for is, and no more."""

    cells: SelectedCells
    plan: ChunkPlan
    float64: bool
    ndim = 2

    @property
    def shape(self) -> tuple[int, int]:
        return self.cells.shape

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float64 if self.float64 else np.float32)

    def __sizeof__(self) -> int:
        return self.cells.__sizeof__()

    def __getitem__(self, index) -> np.ndarray:
        rows, columns = index if isinstance(index, tuple) and len(index) == 2 else (index, slice(None))
        genes = np.arange(self.shape[1])[columns]
        wanted, order = np.unique(genes, return_inverse=True)
        cells, rows = self._rows(rows)
        plan = self.plan
        if len(wanted) < self.shape[1]:
            cells, plan = cells.genes(wanted), plan.of_genes(wanted)
        values = plan.apply(cells, float64=self.float64)
        if not isinstance(columns, slice) or columns.step not in (None, 1):
            values = values[:, order.reshape(genes.shape)]
        return values if rows is None else values[rows]

    def _rows(self, rows) -> tuple[SelectedCells, object]:
        """The cells that are asked for, or all and what to take of them."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(self.shape[0])
            return self.cells.rows(start, max(start, stop)), None
        return self.cells, rows


def _scaled(selected: da.Array, plan: ChunkPlan, float64: bool) -> da.Array:
    """The lazy result.

    A slice of a getter becomes a getter of the slice when Dask optimises the graph, so that a column of the result asks
    :class:`_ScaledCells` for this column.
    """
    rows, n_genes = selected.chunks[0], len(plan.selected)
    dtype = np.dtype(np.float64 if float64 else np.float32)
    meta = np.empty((0, 0), dtype=dtype)
    chunks = (rows, (n_genes,))
    cells = da.map_blocks(
        _ScaledCells,
        selected,
        plan=plan,
        float64=float64,
        dtype=dtype,
        chunks=chunks,
        meta=meta,
        token="zheng17-scaling",
    )
    name = f"zheng17-scale-{tokenize(cells.name)}"
    everything = (slice(None), slice(None))
    layer = {(name, at, 0): (getter, (cells.name, at, 0), everything) for at in range(len(rows))}
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[cells])
    return da.Array(graph, name, chunks=chunks, dtype=dtype, meta=meta)


def _pca(selected: da.Array, plan: Plan, components: Components) -> dict:
    n_comps = len(components.variance)
    scores = da.map_blocks(
        _scores,
        selected,
        plan=plan.chunks,
        components=components,
        dtype=np.float32,
        chunks=(selected.chunks[0], (n_comps,)),
        meta=np.empty((0, 0), dtype=np.float32),
        token="zheng17-scores",
    )
    return {
        "pca_scores": scores,
        "pca_loadings": components.loadings,
        "pca_variance": components.variance,
        "pca_variance_ratio": components.variance_ratio,
    }


def _scores(cells: SelectedCells, *, plan: ChunkPlan, components: Components) -> np.ndarray:
    return plan.scores(cells, components)


def _check_parameters(n_top_genes: int, log: bool, version: str) -> None:
    two_cells = _zheng17.summarize(_matrix.source(np.ones((2, 1))))
    _zheng17.Planner(two_cells, version=version, n_top_genes=n_top_genes, log=log, max_value=None)


def _check_components(n_comps: int, n_cells: int, n_selected: int) -> None:
    most = min(n_cells, n_selected) - 1
    if not 0 < n_comps <= most:
        raise ValueError(
            f"{n_comps} principal components asked for, but {n_cells} cells and "
            f"{n_selected} selected genes have at most {most}"
        )


def _with_names(message: str, adata) -> str:
    """A message of a worker, which knows only places, with the names of cell and gene."""
    names = {"cell": adata.obs_names, "gene": adata.var_names}

    def named(match: re.Match) -> str:
        place = int(match[2])
        known = names[match[1]]
        return f"{match[0]} ({_matrix.printable(known[place])})" if place < len(known) else match[0]

    return re.sub(r"\b(cell|gene) (\d+)\b(?! \()", named, message)


def _row_chunks(x: da.Array, name: str, engine: _Engine) -> da.Array:
    """The array with all genes in each chunk."""
    if x.ndim != 2 or any(np.isnan(size) for sizes in x.chunks for size in sizes):
        raise ValueError(
            f"{name}: a matrix with chunks of known size is needed; {name}.compute_chunk_sizes() finds them out"
        )
    n_chunks, n_genes = len(x.chunks[1]), x.shape[1]
    if n_chunks == 1:
        return x
    rows = max(x.chunks[0])
    advice = f"make it with chunks of whole rows: chunks=({rows}, -1) where it is read, or {name}.rechunk({{1: -1}})"
    if n_chunks > _MOST_GENE_CHUNKS:
        raise ValueError(
            f"{name} has {n_chunks} chunks of genes, at most {_MOST_GENE_CHUNKS} are put together, since that takes "
            f"{n_chunks * len(x.chunks[0])} tasks; {advice}"
        )
    stored = sparse.issparse(x._meta)
    needed = rows * n_genes * (_STORED_BYTES / _ONE_STORED_IN if stored else np.dtype(x.dtype).itemsize)
    memory = engine.memory()
    if memory is not None and needed > memory * _SHARE_OF_MEMORY:
        raise ValueError(
            f"{name} has {n_chunks} chunks of genes; put together, {rows} cells x {n_genes} genes take about "
            f"{needed / 2**30:.2f} GiB, more than a quarter of the {memory / 2**30:.2f} GiB of a worker; {advice}"
        )
    log.info("%s: %d chunks of genes are put together, so that each chunk has whole cells", name, n_chunks)
    return da.blockwise(
        _side_by_side,
        "ik",
        x,
        "ij",
        new_axes={"k": n_genes},
        concatenate=False,
        dtype=x.dtype,
        meta=x._meta,
        token="zheng17-genes",
        label=name,
    )


def _side_by_side(blocks, label: str):
    for block in blocks:
        _matrix.check(block, label)
    return sparse.hstack(blocks, format="csr") if sparse.issparse(blocks[0]) else np.hstack(blocks)
