"""The recipe on chunks of cells, for those who bring their own engine: summarise, merge, plan, apply.

A chunk is some consecutive cells, in any kind of matrix. Nothing here knows other chunks, workers or files. What
travels is small: a summary has a few numbers for each gene and one for each cell of the chunk; what chunks need to know
has a few numbers for each gene.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zheng17 import _matrix, _parameters, _zheng17
from zheng17._zheng17 import Moments, Source, Summary

#: A place after this is a mistake, and would not fit into sums.
_MOST_CELLS = 2**48


def summarize(X, first_cell: int = 0) -> Summary:
    """Sum up a chunk of cells, exactly.

    Parameters
    ----------
    X
        Counts, cells x genes: any matrix that :func:`recipe_zheng17` takes, but Dask's.
    first_cell
        The place of its first cell among all cells.

    Returns
    -------
    Summary
        It can be pickled. ``Summary.merge`` joins those of different cells, in any order, to the same bits.

    Raises
    ------
    ValueError
        For counts that are negative or not finite, naming cell and gene by their places in the whole.
    """
    return _zheng17.summarize(_source(X, first_cell))


def plan_from(
    summary: Summary,
    *,
    n_top_genes: int = 1000,
    log: bool = True,
    version: str = "exact",
    max_value: float | None = None,
) -> Plan:
    """Plan the recipe from the summary of all cells.

    The plan asks for more until it is ready: it needs to know the totals over the selected genes, and then the moments
    of the normalised values. Both are sums over chunks again, over few entries.

    Parameters
    ----------
    summary
        The merged summary of all cells.
    n_top_genes, log, version, max_value
        As in :func:`recipe_zheng17`; ``max_value`` clips scaled values on both sides.

    Raises
    ------
    ValueError
        For parameters that make no sense; for data without counts.
    NotImplementedError
        For ``"scanpy-1.4"``, whose sums need all cells in order.

    Examples
    --------
    >>> import numpy as np, zheng17
    >>> counts = np.random.default_rng(0).poisson(1.0, (100, 500)).astype(np.float32)
    >>> chunks = [(first, counts[first : first + 30]) for first in range(0, 100, 30)]
    >>> summary = zheng17.Summary.merge([zheng17.summarize(X, first) for first, X in chunks])
    >>> plan = zheng17.plan_from(summary, n_top_genes=50)
    >>> while not plan.ready:
    ...     plan = plan.after([plan.look(X, first) for first, X in chunks])
    >>> scaled = np.concatenate([zheng17.apply(plan, X, first) for first, X in chunks])

    The same, to the last bit:

    >>> import anndata
    >>> adata = anndata.AnnData(counts)
    >>> zheng17.recipe_zheng17(adata, n_top_genes=50)
    >>> np.array_equal(adata.X, scaled), adata.uns["zheng17"]["summary_sha256"] == plan.result["digest"]
    (True, True)
    """
    if not isinstance(summary, Summary):
        raise TypeError(f"a Summary is expected, not {type(summary).__name__}; zheng17.summarize makes one of a chunk")
    asked = _parameters.recipe(n_top_genes=n_top_genes, log=log, version=version, max_value=max_value)
    chunks = ChunkPlan(
        version=asked["version"], log=asked["log"], max_value=asked["max_value"], n_genes=summary.n_genes
    )
    return Plan(chunks=chunks, n_top_genes=asked["n_top_genes"], summary=summary)._begun()


def apply(plan: Plan | ChunkPlan, X, first_cell: int = 0, *, float64: bool = False) -> np.ndarray:
    """The scaled values of a chunk: cells x selected genes, float32, or float64 if asked for.

    ``X`` is the chunk of counts, or what :meth:`ChunkPlan.select` kept of it.
    """
    if isinstance(plan, Plan):
        plan._check_place(X, first_cell)
        plan = plan.chunks
    if not isinstance(plan, ChunkPlan):
        raise TypeError(f"a Plan is expected, not {type(plan).__name__}")
    return plan.apply(X, first_cell, float64=float64)


@dataclass(frozen=True, eq=False)
class SelectedCells:
    """What is kept of a chunk: the counts of the selected genes, with the totals that factors are made of.

    5 to 15 % of the entries. All later steps take it instead of the chunk.
    """

    first_cell: int
    n_genes: int
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    #: The total of each cell over the selected genes.
    hvg_totals: np.ndarray
    #: The total of each cell over all kept genes, in versions that need it.
    cell_totals: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.n_genes

    @property
    def nbytes(self) -> int:
        arrays = (self.indptr, self.indices, self.data, self.hvg_totals, self.cell_totals)
        return sum(array.nbytes for array in arrays if array is not None)

    def __sizeof__(self) -> int:
        return self.nbytes + object.__sizeof__(self)

    def source(self) -> Source:
        """A source over it, at its place among all cells."""
        arrays = (_matrix.contiguous(array) for array in (self.indptr, self.indices, self.data))
        return Source.csr(*arrays, self.n_genes, name="selected genes", first_cell=self.first_cell)

    def rows(self, start: int, stop: int) -> SelectedCells:
        """Some consecutive cells of it."""
        first, last = self.indptr[start], self.indptr[stop]
        return dataclasses.replace(
            self,
            first_cell=self.first_cell + start,
            indptr=self.indptr[start : stop + 1] - first,
            indices=self.indices[first:last],
            data=self.data[first:last],
            hvg_totals=self.hvg_totals[start:stop],
            cell_totals=None if self.cell_totals is None else self.cell_totals[start:stop],
        )

    def genes(self, genes: np.ndarray) -> SelectedCells:
        """Some genes of it, in increasing order. Totals stay those over all selected genes."""
        indptr, indices, data = _zheng17.select(self.source(), genes)
        return dataclasses.replace(self, n_genes=len(genes), indptr=indptr, indices=indices, data=data)


@dataclass(frozen=True, eq=False)
class Gram:
    """Sums over cells of the products of all pairs of genes and of the genes: what principal components are made of."""

    products: np.ndarray
    sums: np.ndarray

    @staticmethod
    def merge(parts: Sequence[Gram]) -> Gram:
        """The sums over the cells of all of these. They are rounded: the last bits depend on the order."""
        products, sums = parts[0].products.copy(), parts[0].sums.copy()
        for part in parts[1:]:
            products += part.products
            sums += part.sums
        return Gram(products, sums)


@dataclass(frozen=True, eq=False)
class Components:
    """Principal components of the scaled genes."""

    #: Genes x components, columns of length 1.
    loadings: np.ndarray
    variance: np.ndarray
    variance_ratio: np.ndarray
    #: What is taken off the scores of each component.
    offset: np.ndarray


@dataclass(frozen=True, eq=False)
class ChunkPlan:
    """What chunks need to know: a few numbers for each gene, whatever the number of cells. It can be pickled."""

    version: str
    log: bool
    max_value: float | None
    n_genes: int
    #: What is asked of chunks next: "totals", "moments", "selected", "deviations", or "nothing".
    stage: str = "totals"
    #: A flag for each gene that cell totals leave out, if there is any.
    excluded: np.ndarray | None = None
    target_sum: float | None = None
    #: The positions of the selected genes.
    selected: np.ndarray | None = None
    hvg_target_sum: float | None = None
    #: Mean and standard deviation of each selected gene, before scaling.
    mean: np.ndarray | None = None
    std: np.ndarray | None = None

    def look(self, X, first_cell: int = 0) -> Summary | Moments:
        """What the plan asks of a chunk: of its counts, or from stage "selected" on of what was kept of them."""
        if self.stage == "totals":
            return _zheng17.summarize(_source(X, first_cell, self.n_genes), self.excluded)
        if self.stage == "moments":
            source = _source(X, first_cell, self.n_genes)
            scale, arithmetic, exponent = _zheng17.float32_factors(
                self.version, self.target_sum, _zheng17.summarize(source, self.excluded).cell_totals
            )
            return _zheng17.moments(source, scale, arithmetic, exponent)
        if self.stage == "selected":
            return _zheng17.summarize(self.select(X, first_cell).source())
        if self.stage == "deviations":
            cells = self.select(X, first_cell)
            _, _, scale, arithmetic = self._factors(cells)
            return _zheng17.moments(cells.source(), scale, arithmetic)
        raise ValueError("the plan is ready: it asks for nothing more")

    def select(self, X, first_cell: int = 0) -> SelectedCells:
        """What is kept of a chunk: the counts of the selected genes."""
        if isinstance(X, SelectedCells):
            if self.selected is not None and X.n_genes != len(self.selected):
                raise ValueError(f"the chunk has {X.n_genes} selected genes, {len(self.selected)} expected")
            return X
        if self.selected is None:
            raise ValueError(f"genes are not selected yet: the plan asks for {self.stage!r}")
        source = _source(X, first_cell, self.n_genes)
        indptr, indices, data = _zheng17.select(source, self.selected)
        # Where cells are not renormalised, their factors are made of their first totals.
        needs_totals = self.version == "scanpy-main"
        cell_totals = _zheng17.summarize(source, self.excluded).cell_totals if needs_totals else None
        kept = SelectedCells(first_cell, len(self.selected), indptr, indices, data, np.empty(0), cell_totals)
        return dataclasses.replace(kept, hvg_totals=_zheng17.summarize(kept.source()).cell_totals)

    def apply(self, X, first_cell: int = 0, *, float64: bool = False) -> np.ndarray:
        """The scaled values of a chunk, dense: cells x selected genes."""
        cells = self.select(X, first_cell)
        return self._scaling(cells).apply(cells.source(), float64)

    def gram(self, X, first_cell: int = 0) -> Gram:
        """The sums of products over a chunk."""
        cells = self.select(X, first_cell)
        return Gram(*self._scaling(cells).gram(cells.source()))

    def scores(self, X, components: Components, first_cell: int = 0) -> np.ndarray:
        """The scores of a chunk's cells: cells x components, float32."""
        cells = self.select(X, first_cell)
        return self._scaling(cells).project(cells.source(), components.loadings, components.offset)

    def of_genes(self, genes: np.ndarray) -> ChunkPlan:
        """The plan for some of the selected genes only, to apply it to chunks of these."""
        return dataclasses.replace(self, selected=self.selected[genes], mean=self.mean[genes], std=self.std[genes])

    def _factors(self, cells: SelectedCells) -> tuple[np.ndarray, bool, np.ndarray, str]:
        totals = cells.hvg_totals if cells.cell_totals is None else cells.cell_totals
        return _zheng17.cell_factors(
            self.version, self.log, self.target_sum, self.hvg_target_sum, totals, cells.hvg_totals
        )

    def _scaling(self, cells: SelectedCells) -> _zheng17.Scaling:
        if self.stage != "nothing":
            raise ValueError(f"the plan is not ready: it asks for {self.stage!r}")
        factors, log, _, _ = self._factors(cells)
        return _zheng17.Scaling(factors, log, self.mean, self.std, self.max_value)


@dataclass(frozen=True, eq=False)
class Plan:
    """What summaries decide. :func:`plan_from` makes one; it can be pickled."""

    #: The part that chunks need.
    chunks: ChunkPlan
    n_top_genes: int
    #: The summary of all cells, and with only the selected genes.
    summary: Summary
    selected_summary: Summary | None = None
    #: What was found out, by name: ``selected``, ``target_sum``, ``scores``, ``mean``, ``std``, ``digest`` and more.
    result: dict = dataclasses.field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether it can be applied; else it asks chunks for more."""
        return self.chunks.stage == "nothing"

    def look(self, X, first_cell: int = 0) -> Summary | Moments:
        """What the plan asks of a chunk of counts, or of what :meth:`select` kept of it."""
        self._check_place(X, first_cell)
        return self.chunks.look(X, first_cell)

    def select(self, X, first_cell: int = 0) -> SelectedCells:
        """What is kept of a chunk, once genes are selected (``chunks.stage`` is ``"selected"`` or later)."""
        self._check_place(X, first_cell)
        return self.chunks.select(X, first_cell)

    def _check_place(self, X, first_cell: int) -> None:
        """Refuses a chunk that ends after the last cell."""
        shape = getattr(X, "shape", None)
        if isinstance(X, (Source, SelectedCells)) or shape is None or len(shape) != 2:
            return
        end = _parameters.whole("first_cell", first_cell, 0, _MOST_CELLS) + shape[0]
        if end > self.summary.n_cells:
            raise ValueError(f"cells {first_cell}..{end} of {self.summary.n_cells}: the chunk ends after the last cell")

    def after(self, parts: Summary | Moments | Sequence[Summary | Moments]) -> Plan:
        """The plan that knows what chunks said to :meth:`look`: of all chunks, in any order, merged or not."""
        stage = self.chunks.stage
        if stage == "nothing":
            raise ValueError("the plan is ready: it asks for nothing more")
        kind = Moments if stage in ("moments", "deviations") else Summary
        parts = [parts] if isinstance(parts, kind) else parts
        if not isinstance(parts, Sequence) or not all(isinstance(part, kind) for part in parts):
            raise TypeError(f"the plan asks for {stage!r}: what look gave of each chunk, of type {kind.__name__}")
        if not parts:
            raise ValueError(f"the plan asks for {stage!r}: what look gave of each chunk, but there is none")
        whole = parts[0] if len(parts) == 1 else kind.merge(list(parts))
        if stage == "totals":
            return dataclasses.replace(self, summary=whole)._begun()
        if stage == "moments":
            return self._with_genes(whole)
        if stage == "selected":
            return self._with_cells(whole)
        target_sum = self.chunks.target_sum
        mean, std = self._planner().scale_genes(target_sum, self.selected_summary, whole)
        chunks = dataclasses.replace(self.chunks, stage="nothing", mean=mean, std=std)
        return dataclasses.replace(self, chunks=chunks, result=self.result | {"mean": mean, "std": std})

    def components(self, gram: Gram, n_comps: int) -> Components:
        """Principal components of all cells, exactly, from the sums that :meth:`ChunkPlan.gram` has, merged."""
        cells = np.empty(0)
        scaling = _zheng17.Scaling(
            cells, self.result["logged"], self.chunks.mean, self.chunks.std, self.chunks.max_value
        )
        found = scaling.components(gram.products, gram.sums, self.summary.n_cells, n_comps)
        return Components(**found)

    def _planner(self) -> _zheng17.Planner:
        chunks = self.chunks
        return _zheng17.Planner(
            self.summary,
            version=chunks.version,
            n_top_genes=self.n_top_genes,
            log=chunks.log,
            max_value=chunks.max_value,
        )

    def _begun(self) -> Plan:
        planner = self._planner()
        excluded = self.summary.genes_to_exclude()
        if excluded is not None:
            return dataclasses.replace(self, chunks=dataclasses.replace(self.chunks, excluded=excluded))
        target_sum = planner.float32_target()
        if target_sum is None:
            return self._with_genes(None)
        return dataclasses.replace(
            self, chunks=dataclasses.replace(self.chunks, stage="moments", target_sum=target_sum)
        )

    def _with_genes(self, moments: Moments | None) -> Plan:
        result = self._planner().select_genes(moments)
        result |= {
            "cells": np.arange(self.summary.n_cells),
            "n_cells": self.summary.n_cells,
            "n_genes": self.summary.n_genes,
            "digest": self.summary.digest,
        }
        chunks = dataclasses.replace(
            self.chunks, stage="selected", target_sum=result["target_sum"], selected=result["selected"]
        )
        return dataclasses.replace(self, chunks=chunks, result=result)

    def _with_cells(self, selected: Summary) -> Plan:
        scaled = self._planner().scale_cells(self.chunks.target_sum, selected)
        scaled["warnings"] = scaled["warnings"] + self.result["warnings"]
        chunks = dataclasses.replace(self.chunks, stage="deviations", hvg_target_sum=scaled["hvg_target_sum"])
        return dataclasses.replace(self, chunks=chunks, selected_summary=selected, result=self.result | scaled)


def _source(X, first_cell: int, n_genes: int | None = None) -> Source:
    """A source over a chunk, of so many genes."""
    if isinstance(X, Source):
        source = X
    else:
        source = _matrix.source(X, first_cell=_parameters.whole("first_cell", first_cell, 0, _MOST_CELLS))
    if n_genes is not None and source.shape[1] != n_genes:
        raise ValueError(f"{source.name}: the chunk has {source.shape[1]} genes, {n_genes} expected")
    return source
