"""From file to file, without AnnData."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable

from zheng17 import _zheng17
from zheng17._progress import reporter

log = logging.getLogger("zheng17")

_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1000, "m": 1000**2, "mb": 1000**2, "g": 1000**3, "gb": 1000**3}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "t": 1000**4, "tb": 1000**4, "tib": 1 << 40}


def memory_bytes(memory: int | str | None) -> int | None:
    """A size such as ``"2GiB"`` in bytes.

    >>> memory_bytes("2GiB")
    2147483648
    """
    if memory is None or isinstance(memory, int):
        return memory
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", memory)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f'memory must be a number of bytes or a size such as "2GiB", not {memory!r}')
    return int(float(match[1]) * _UNITS[match[2].lower()])


def run(
    path_in: str | os.PathLike,
    path_out: str | os.PathLike,
    *,
    version: str = "exact",
    n_top_genes: int = 1000,
    log: bool = True,
    max_value: float | None = None,
    n_comps: int | None = None,
    backend: str = "auto",
    threads: int | None = None,
    memory: int | str | None = None,
    chunk_rows: int | None = None,
    write_x: str = "scaled",
    gene_table: str | os.PathLike | None = None,
    force: bool = False,
    layer: str | None = None,
    raw: bool = False,
    genome: str | None = None,
    feature_type: str | None = None,
    progress: bool | Callable[[str, int, int], object] | None = None,
) -> dict:
    """Run the recipe on a file of counts and write an h5ad file, in bounded memory. What the command ``zheng17 run`` does.

    Parameters
    ----------
    path_in
        An h5ad file, a 10x HDF5 file, a 10x folder or a Matrix Market file; recognised by its content.
    path_out
        The h5ad file to write. It appears complete or not at all.
    version
        ``"exact"``, ``"scanpy-1.12"``, ``"scanpy-1.4"`` or ``"scanpy-main"``.
    n_top_genes, log, max_value
        The number of genes to select; whether to take log(1 + x); the limit that scaled values are clipped to, on both sides.
    n_comps
        Principal components; none if not given.
    backend, threads, memory, chunk_rows
        What computes, on how many threads, in how much memory (bytes, or a size such as ``"2GiB"``; of the whole process), how
        many cells at a time. None of them changes a bit of the result.
    write_x
        ``"scaled"`` (dense), ``"lognorm"`` (sparse, before scaling) or ``"none"``.
    gene_table
        Where to write a table with one row for each gene of the input.
    force
        Whether existing outputs are replaced.
    layer, raw, genome, feature_type
        Which matrix of the file: a layer of h5ad, its raw counts, a genome or a type of features of 10x files.
    progress
        ``True`` for bars of tqdm, or a function that is called with the name of the pass, the cells that are done and all cells.

    Returns
    -------
    dict
        What was found out: ``selected`` (positions) and ``selected_names``, ``target_sum``, ``backend`` and why, ``digest`` of
        the summary, ``seconds`` and more.

    Raises
    ------
    ValueError
        For parameters that make no sense and for data that are not counts, naming file, cell and gene.
    OSError
        If the system refuses to read or write.
    """
    with reporter(progress) as report:
        result = _zheng17.run(
            os.fspath(path_in),
            os.fspath(path_out),
            version=version,
            n_top_genes=n_top_genes,
            log=log,
            max_value=max_value,
            n_comps=n_comps,
            backend=backend,
            threads=threads,
            memory=memory_bytes(memory),
            chunk_rows=chunk_rows,
            values=write_x,
            gene_table=None if gene_table is None else os.fspath(gene_table),
            force=force,
            layer=layer,
            raw=raw,
            genome=genome,
            feature_type=feature_type,
            progress=report,
        )
    tell(result, stacklevel=2)
    return result


def plan(
    path: str | os.PathLike,
    *,
    version: str = "exact",
    n_top_genes: int = 1000,
    log: bool = True,
    max_value: float | None = None,
    n_comps: int | None = None,
    backend: str = "auto",
    threads: int | None = None,
    memory: int | str | None = None,
    chunk_rows: int | None = None,
    write_x: str = "scaled",
    layer: str | None = None,
    raw: bool = False,
    genome: str | None = None,
    feature_type: str | None = None,
) -> dict:
    """What :func:`run` would do and take, without running it. Parameters as there.

    Returns
    -------
    dict
        ``backend`` and why, ``passes`` (what for, and what share of the file each reads), ``peak_bytes``, ``output_bytes`` and
        more. Sizes are estimates, in bytes.
    """
    return _zheng17.plan(
        os.fspath(path),
        version=version,
        n_top_genes=n_top_genes,
        log=log,
        max_value=max_value,
        n_comps=n_comps,
        backend=backend,
        threads=threads,
        memory=memory_bytes(memory),
        chunk_rows=chunk_rows,
        values=write_x,
        layer=layer,
        raw=raw,
        genome=genome,
        feature_type=feature_type,
    )


def backends() -> list[dict]:
    """The backends of this build: name, description, and what each can do.

    >>> [backend["name"] for backend in backends()]
    ['rayon', 'lazy', 'serial']
    """
    return _zheng17.backends()


def load_plugin(path: str | os.PathLike) -> str:
    """Load a backend from a shared library; the name to choose it by is returned. Its code runs in this process."""
    return _zheng17.load_plugin(os.fspath(path))


def tell(result: dict, stacklevel: int) -> None:
    """Logs how a result came about, and warns of what a user should know."""
    reason = f": {result['backend_reason']}" if result.get("backend_reason") else ""
    log.info("backend %s%s", result["backend"], reason)
    for note in result["notes"]:
        log.info("%s", note)
    for warning in result["warnings"]:
        warnings.warn(warning, UserWarning, stacklevel=stacklevel + 1)
