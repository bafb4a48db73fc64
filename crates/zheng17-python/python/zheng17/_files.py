"""From file to file, without AnnData."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable

from zheng17 import _parameters, _zheng17
from zheng17._progress import check_progress, reporter

log = logging.getLogger("zheng17")

_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1000, "m": 1000**2, "mb": 1000**2, "g": 1000**3, "gb": 1000**3}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "t": 1000**4, "tb": 1000**4, "tib": 1 << 40}


def memory_bytes(memory: int | str | None) -> int | None:
    """A size such as ``"2GiB"`` in bytes.

    >>> memory_bytes("2GiB")
    2147483648
    """
    if memory is None:
        return None
    if not isinstance(memory, str):
        try:
            return _parameters.whole("memory", memory, 0)
        except TypeError:
            raise TypeError(f'memory must be a number of bytes or a size such as "2GiB", not {memory!r}') from None
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
    TypeError
        For parameters of another type.
    FileNotFoundError, FileExistsError
        If there is no such input; if an output exists already, without ``force``.
    OSError
        If the system refuses to read or write.
    """
    path_in, path_out = _existing("path_in", path_in), _parameters.path("path_out", path_out)
    gene_table = None if gene_table is None else _parameters.path("gene_table", gene_table)
    asked = _asked(version, n_top_genes, log, max_value, n_comps, backend, threads, memory, chunk_rows, write_x)
    asked |= _chosen(layer, raw, genome, feature_type)
    force = _parameters.flag("force", force)
    check_progress(progress)
    for output in (path_out, gene_table):
        if output is not None and not force and os.path.isfile(output) and not _same_file(output, path_in):
            raise FileExistsError(f"{output}: the output exists already; force=True replaces it")
    with reporter(progress) as report:
        result = _zheng17.run(
            path_in,
            path_out,
            **asked,
            gene_table=gene_table,
            force=force,
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
    path = _existing("path", path)
    asked = _asked(version, n_top_genes, log, max_value, n_comps, backend, threads, memory, chunk_rows, write_x)
    return _zheng17.plan(path, **asked, **_chosen(layer, raw, genome, feature_type))


def _asked(version, n_top_genes, log, max_value, n_comps, backend, threads, memory, chunk_rows, write_x) -> dict:
    """Parameters of the recipe and of what computes, checked, by the names of the native half."""
    return _parameters.recipe(
        version=version, n_top_genes=n_top_genes, log=log, max_value=max_value, n_comps=n_comps
    ) | {
        "backend": _parameters.text("backend", backend),
        "threads": _parameters.threads(threads),
        "memory": memory_bytes(memory),
        "chunk_rows": _parameters.whole_or_none("chunk_rows", chunk_rows),
        "values": _parameters.text("write_x", write_x),
    }


def _chosen(layer, raw, genome, feature_type) -> dict:
    """Which matrix of a file, checked."""
    return {
        "layer": _parameters.text_or_none("layer", layer),
        "raw": _parameters.flag("raw", raw),
        "genome": _parameters.text_or_none("genome", genome),
        "feature_type": _parameters.text_or_none("feature_type", feature_type),
    }


def _existing(name: str, path) -> str:
    """The path of an input that is there."""
    path = _parameters.path(name, path)
    if not os.path.lexists(path):
        raise FileNotFoundError(f"{path}: there is no such file")
    return path


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def backends() -> list[dict]:
    """The backends of this build: name, description, and what each can do.

    >>> [backend["name"] for backend in backends()][:3]
    ['rayon', 'lazy', 'serial']
    """
    return _zheng17.backends()


def load_plugin(path: str | os.PathLike) -> str:
    """Load a backend from a shared library; the name to choose it by is returned. Its code runs in this process."""
    return _zheng17.load_plugin(_parameters.path("path", path))


def tell(result: dict, stacklevel: int) -> None:
    """Logs how a result came about, and warns of what a user should know."""
    reason = f": {result['backend_reason']}" if result.get("backend_reason") else ""
    log.info("backend %s%s", result["backend"], reason)
    for note in result["notes"]:
        log.info("%s", note)
    for warning in result["warnings"]:
        warnings.warn(warning, UserWarning, stacklevel=stacklevel + 1)
