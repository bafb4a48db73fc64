#!/usr/bin/env python3
"""The Zheng17 recipe as one writes it with CuPy's sparse matrices, step by step and timed, on the cells that
`zheng17-gpu-check export` writes: cupy_recipe.py FOLDER --cells N [N ...] --json FILE. What CuPy can't do, or has no memory for, is
written down and stops nothing but the steps that need it. With --host, numpy and scipy take CuPy's place, and nothing is timed."""

import argparse
import json
import math
import pathlib

import numpy as np

TOP_GENES = 1000
COMPONENTS = 50
BLOCK_CELLS = 65_536
REPETITIONS = 3


class Device:
    """CuPy, or what stands in for it."""

    def __init__(self, host):
        if host:
            import scipy.sparse

            self.xp, self.sparse, self.cp = np, scipy.sparse, None
            self.name = "the host (numpy, not timed)"
            self.add_at = np.add.at
        else:
            import cupy
            import cupyx
            import cupyx.scipy.sparse

            self.xp, self.sparse, self.cp = cupy, cupyx.scipy.sparse, cupy
            self.name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode() + ", CuPy " + cupy.__version__
            self.add_at = getattr(cupyx, "scatter_add", None) or cupy.add.at

    def timed(self, work, repetitions):
        """The result, and the median of some times in milliseconds after one that does not count; or, without repetitions, of one."""
        if self.cp is None:
            return work(), None
        times = []
        for _ in range(repetitions + 1):
            result = None
            begin, end = self.cp.cuda.Event(), self.cp.cuda.Event()
            begin.record()
            result = work()
            end.record()
            end.synchronize()
            times.append(self.cp.cuda.get_elapsed_time(begin, end))
        times = sorted(times[1:] or times)
        return result, times[len(times) // 2]

    def forget(self):
        """Gives memory back that nobody uses."""
        if self.cp is not None:
            self.cp.get_default_memory_pool().free_all_blocks()


class Recorder:
    """Runs steps and writes down how they went."""

    def __init__(self, device, path, n_cells):
        self.device, self.path, self.n_cells = device, path, n_cells

    def step(self, operation, work, repetitions=REPETITIONS):
        """The result of a step, or None if it failed."""
        facts = {"step": "cupy", "what": "cupy", "device": self.device.name, "emulated": False,
                 "n_cells": self.n_cells, "operation": operation, "milliseconds": None}
        result = None
        try:
            result, facts["milliseconds"] = self.device.timed(work, repetitions)
        except Exception as error:  # whatever it was, the next step may do
            facts["missing"] = f"{type(error).__name__}: {error}"[:160]
        self.device.forget()
        print(operation, facts.get("missing") or facts["milliseconds"], flush=True)
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(facts) + "\n")
        return result


def repeated(base, n_cells):
    """Row starts, genes and counts of so many cells: those of the base again and again, on the host, a block at a time."""
    starts, genes, counts = base
    n_base = len(starts) - 1
    for first in range(0, n_cells, n_base):
        n = min(n_base, n_cells - first)
        end = int(starts[n])
        yield np.diff(starts[: n + 1]), genes[:end], counts[:end]


def load(device, base, n_cells, n_genes):
    """The matrix of all cells on the device. Places are as wide as the entries need."""
    xp = device.xp
    lengths, genes, counts = [], [], []
    on_device = {}
    for block_lengths, block_genes, block_counts in repeated(base, n_cells):
        key = len(block_lengths)
        if key not in on_device:
            on_device[key] = xp.asarray(block_lengths), xp.asarray(block_genes), xp.asarray(block_counts)
        for to, block in zip((lengths, genes, counts), on_device[key]):
            to.append(block)
    n_entries = sum(len(block) for block in genes)
    places = np.int32 if n_entries < 2**31 else np.int64
    starts = xp.zeros(n_cells + 1, dtype=np.int64)
    starts[1:] = xp.cumsum(xp.concatenate(lengths))
    genes = xp.concatenate(genes).astype(places)
    counts = xp.concatenate(counts)
    return device.sparse.csr_matrix((counts, genes, starts.astype(places)), shape=(n_cells, n_genes))


def rows_of(xp, matrix):
    """The row of each entry."""
    return xp.searchsorted(matrix.indptr, xp.arange(matrix.nnz, dtype=matrix.indptr.dtype), side="right") - 1


def select(means, variances, n_top):
    """The genes of the highest dispersion, normalised within 20 bins of the mean. On the host: it is small."""
    means, variances = np.asarray(means), np.asarray(variances)
    with np.errstate(all="ignore"):
        dispersion = variances / means
    edges = np.r_[-np.inf, np.percentile(means, np.arange(10, 105, 5)), np.inf]
    bins = np.digitize(means, edges)
    score = np.full(len(means), -np.inf)
    for which in np.unique(bins):
        inside = bins == which
        middle = np.nanmedian(dispersion[inside])
        spread = np.nanmedian(np.abs(dispersion[inside] - middle)) / 0.6744897501960817
        if spread > 0:
            score[inside] = np.abs(np.nan_to_num(dispersion[inside] - middle)) / spread
    return np.sort(np.argsort(-score, kind="stable")[:n_top])


def run(device, base, n_cells, n_genes, path):
    xp = device.xp
    recorder = Recorder(device, path, n_cells)
    step = recorder.step
    matrix = step("cells to the device", lambda: load(device, base, n_cells, n_genes), repetitions=0)
    if matrix is None:
        return
    totals = step("totals of cells", lambda: matrix.sum(axis=1))
    gene_totals = step("totals of genes", lambda: matrix.sum(axis=0))
    if totals is None or gene_totals is None:
        return
    totals = xp.asarray(totals).ravel().astype(np.float64)
    target = float(xp.median(totals[totals > 0]))
    factors = xp.where(totals > 0, target / xp.maximum(totals, 1), 0)
    values = step("normalised values", lambda: matrix.data * factors[rows_of(xp, matrix)].astype(np.float32))
    if values is None:
        return

    def moments():
        sums, squares = xp.zeros(n_genes), xp.zeros(n_genes)
        wide = values.astype(np.float64)
        device.add_at(sums, matrix.indices, wide)
        device.add_at(squares, matrix.indices, wide * wide)
        means = sums / n_cells
        return means, (squares / n_cells - means * means) * (n_cells / (n_cells - 1))

    found = step("means and variances by scatter-add", moments)
    del values
    if found is None:
        return
    kept = np.flatnonzero(np.asarray(xp.asarray(gene_totals).ravel().tolist()) >= 1)
    means, variances = (np.asarray(numbers.tolist())[kept] for numbers in found)
    genes = kept[select(means, variances, min(TOP_GENES, len(kept)))]
    few = step("selected genes", lambda: matrix[:, xp.asarray(genes)])
    if few is None:
        return
    del matrix
    totals = step("totals of selected genes", lambda: few.sum(axis=1))
    if totals is None:
        return
    totals = xp.asarray(totals).ravel().astype(np.float64)
    factors = xp.where(totals > 0, float(xp.median(totals[totals > 0])) / xp.maximum(totals, 1), 0)

    def logarithms():
        changed = few.copy()
        changed.data = few.data * factors[rows_of(xp, few)].astype(np.float32)
        return changed.log1p()

    logs = step("normalised again, log1p", logarithms)
    if logs is None:
        return
    blocks = range(0, n_cells, BLOCK_CELLS)

    def dense(first):
        return logs[first : first + BLOCK_CELLS].toarray().astype(np.float64)

    def spread():
        sums, squares = 0.0, 0.0
        for first in blocks:
            block = dense(first)
            sums, squares = sums + block.sum(axis=0), squares + (block * block).sum(axis=0)
        means = sums / n_cells
        variances = (squares / n_cells - means * means) * (n_cells / (n_cells - 1))
        return means, xp.where(variances > 0, 1 / xp.sqrt(xp.where(variances > 0, variances, 1)), 0)

    found = step("means and deviations", spread, repetitions=1)
    if found is None:
        return
    mean, inverse = found

    def products():
        sums = xp.zeros((len(genes), len(genes)))
        for first in blocks:
            block = (dense(first) - mean) * inverse
            sums += block.T @ block
        return sums

    gram = step("products of gene pairs, dense", products, repetitions=1)
    if gram is None:
        return
    vectors = step("eigenproblem", lambda: xp.linalg.eigh(gram / (n_cells - 1))[1], repetitions=1)
    if vectors is None:
        return
    wanted = vectors[:, ::-1][:, : min(COMPONENTS, len(genes))]

    def scores():
        return xp.concatenate([(((dense(first) - mean) * inverse) @ wanted).astype(np.float32) for first in blocks])

    found = step("scores", scores, repetitions=1)
    if found is not None and not math.isfinite(float(xp.abs(found).sum())):
        raise ValueError("the scores are not finite")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--cells", type=int, nargs="+", required=True)
    arguments.add_argument("--json")
    arguments.add_argument("--host", action="store_true")
    arguments = arguments.parse_args()
    device = Device(arguments.host)
    base = tuple(np.load(arguments.folder / f"{name}.npy") for name in ("row_start", "genes", "counts"))
    base = base[0].astype(np.int64), base[1].astype(np.int32), base[2]
    n_genes = json.loads((arguments.folder / "sizes.json").read_text())["n_genes"]
    for n_cells in arguments.cells:
        run(device, base, n_cells, n_genes, arguments.json)
        device.forget()


if __name__ == "__main__":
    main()
