"""The native half of zheng17: what the Python modules call. Arrays are one-dimensional unless a shape is given."""

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

__version__: str
__all__ = [
    "Moments",
    "Planner",
    "Scaling",
    "Source",
    "Summary",
    "__version__",
    "backends",
    "cell_factors",
    "cell_totals",
    "divide_genes",
    "float32_factors",
    "gene_statistics",
    "load_plugin",
    "log1p_values",
    "moments",
    "plan",
    "principal_components",
    "recipe",
    "run",
    "scale_cells",
    "score_genes",
    "select",
    "standardise",
    "summarize",
]

_Floats = NDArray[np.float64]
_Bools = NDArray[np.bool_]
_Arithmetic = Literal["share", "log", "float32", "float32-log"]
_Progress = Callable[[str, int, int], object]
_Path = str | os.PathLike[str]

@final
class Source:
    """A matrix of cells x genes that can be read, in memory or in a file."""

    @staticmethod
    def csr(
        indptr: NDArray[Any],
        indices: NDArray[Any],
        data: NDArray[Any],
        n_genes: int,
        *,
        name: str,
        cell_names: Any = None,
        gene_names: Any = None,
        first_cell: int = 0,
    ) -> Source: ...
    @staticmethod
    def dense(
        values: NDArray[Any],
        n_genes: int,
        *,
        name: str,
        cell_names: Any = None,
        gene_names: Any = None,
        first_cell: int = 0,
    ) -> Source: ...
    @staticmethod
    def file(
        path: _Path,
        *,
        layer: str | None = None,
        raw: bool = False,
        genome: str | None = None,
        feature_type: str | None = None,
        memory: int | None = None,
    ) -> Source: ...
    def part(self, start: int, end: int) -> Source: ...
    def cell_names(self) -> list[str]: ...
    def gene_names(self) -> list[str]: ...
    @property
    def shape(self) -> tuple[int, int]:
        """Cells that are there, and genes."""
    @property
    def n_entries(self) -> int | None:
        """Stored entries, where known."""
    @property
    def name(self) -> str:
        """What it is called in messages."""

@final
class Summary:
    """Exact sums over some cells: totals, and moments of shares. Of different cells they merge, in any order, to the same bits."""

    @staticmethod
    def from_bytes(bytes: bytes, duplicates: int = 0) -> Summary: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def merge(summaries: Sequence[Summary]) -> Summary: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def genes_to_exclude(self) -> _Bools | None: ...
    def __reduce__(self) -> tuple[Any, tuple[bytes, int]]: ...
    def __sizeof__(self) -> int: ...
    @property
    def digest(self) -> str:
        """SHA-256 of the bytes, in hexadecimal digits."""
    @property
    def n_cells(self) -> int:
        """Cells that were summarised."""
    @property
    def n_genes(self) -> int:
        """Genes."""
    @property
    def gene_totals(self) -> _Floats:
        """The total of each gene."""
    @property
    def cell_totals(self) -> _Floats:
        """The total of each cell."""

@final
class Moments:
    """Exact moments of each gene over some cells, after they were scaled. They merge, in any order, to the same bits."""

    @staticmethod
    def from_bytes(bytes: bytes) -> Moments: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def merge(moments: Sequence[Moments]) -> Moments: ...
    def __reduce__(self) -> tuple[Any, tuple[bytes]]: ...

@final
class Planner:
    """What merged summaries decide: which genes are selected, how cells and genes are scaled."""

    def __new__(
        cls, summary: Summary, *, version: str, n_top_genes: int, log: bool, max_value: float | None
    ) -> Planner: ...
    def float32_target(self) -> float | None: ...
    def select_genes(self, moments: Moments | None = None) -> dict[str, Any]: ...
    def scale_cells(self, target_sum: float, selected: Summary) -> dict[str, Any]: ...
    def scale_genes(self, target_sum: float, selected: Summary, moments: Moments) -> tuple[_Floats, _Floats]: ...

@final
class Scaling:
    """How the values of a chunk of selected genes become results."""

    def __new__(
        cls, factors: _Floats, log: bool, mean: _Floats, std: _Floats, max_value: float | None = None
    ) -> Scaling: ...
    def apply(self, source: Source, float64: bool = False) -> NDArray[np.float32] | _Floats: ...
    def gram(self, source: Source) -> tuple[_Floats, _Floats]: ...
    def components(self, products: _Floats, sums: _Floats, n_cells: int, n_comps: int) -> dict[str, Any]: ...
    def project(self, source: Source, loadings: _Floats, offset: _Floats) -> NDArray[np.float32]: ...

def recipe(
    source: Source,
    *,
    version: str,
    n_top_genes: int,
    log: bool,
    max_value: float | None,
    n_comps: int | None,
    backend: str,
    threads: int | None,
    memory: int | None,
    chunk_rows: int | None,
    values: str,
    float64: bool,
    progress: _Progress | None,
) -> dict[str, Any]: ...
def run(
    input: _Path,
    output: _Path,
    *,
    version: str,
    n_top_genes: int,
    log: bool,
    max_value: float | None,
    n_comps: int | None,
    backend: str,
    threads: int | None,
    memory: int | None,
    chunk_rows: int | None,
    values: str,
    gene_table: _Path | None,
    force: bool,
    layer: str | None,
    raw: bool,
    genome: str | None,
    feature_type: str | None,
    progress: _Progress | None,
) -> dict[str, Any]: ...
def plan(
    input: _Path,
    *,
    version: str,
    n_top_genes: int,
    log: bool,
    max_value: float | None,
    n_comps: int | None,
    backend: str,
    threads: int | None,
    memory: int | None,
    chunk_rows: int | None,
    values: str,
    layer: str | None,
    raw: bool,
    genome: str | None,
    feature_type: str | None,
) -> dict[str, Any]: ...
def backends() -> list[dict[str, Any]]: ...
def load_plugin(path: _Path) -> str: ...
def summarize(source: Source, excluded: _Bools | None = None) -> Summary: ...
def select(
    source: Source, genes: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32] | _Floats]: ...
def moments(source: Source, cell_scale: _Floats, arithmetic: _Arithmetic, exponent: int = 0) -> Moments: ...
def float32_factors(version: str, target_sum: float, cell_totals: _Floats) -> tuple[_Floats, _Arithmetic, int]: ...
def cell_factors(
    version: str, log: bool, target_sum: float, hvg_target_sum: float, cell_totals: _Floats, hvg_totals: _Floats
) -> tuple[_Floats, bool, _Floats, _Arithmetic]: ...
def gene_statistics(source: Source, counts: bool) -> dict[str, NDArray[Any]]: ...
def cell_totals(source: Source, max_fraction: float | None = None) -> tuple[_Floats, float | None, _Bools | None]: ...
def log1p_values(values: NDArray[np.floating], base: float | None = None) -> NDArray[np.floating]: ...
def scale_cells(values: NDArray[np.floating], rows: NDArray[Any] | int, factors: _Floats) -> NDArray[np.floating]: ...
def divide_genes(
    values: NDArray[np.floating], genes: NDArray[Any], divisors: _Floats, max_value: float | None = None
) -> NDArray[np.floating]: ...
def standardise(
    source: Source, mean: _Floats, std: _Floats, max_value: float | None = None, float64: bool = False
) -> NDArray[np.floating]: ...
def score_genes(means: _Floats, variances: _Floats, n_top_genes: int | None, absolute: bool) -> dict[str, Any]: ...
def principal_components(source: Source, n_comps: int) -> dict[str, NDArray[Any]]: ...
