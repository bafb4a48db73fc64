"""The recipe on clusters of one and two workers, beside threads of one process and beside scanpy, and what its parts
cost.

Prints medians of seconds as JSON. Each worker is a process with one thread. "from memory" has the counts on the workers
already, as the published figures do; "from file" reads them too. All give X as it is asked for: computed, and left
where it is.

python dask_scaling.py INPUT.h5ad REPEATS CHUNK_ROWS
"""

import json
import pickle
import statistics
import sys
import time
import warnings

warnings.simplefilter("ignore")
import anndata
import numpy as np
import scanpy as sc
from distributed import Client, LocalCluster, wait

import zheng17
import zheng17.dask
from zheng17 import _zheng17


def timed(work, repeats):
    """Median of seconds, and what came of it last."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), result


def in_memory(path, repeats):
    """Threads of one process, and scanpy, on counts in memory."""
    counts = anndata.read_h5ad(path)
    counts.X = counts.X.astype(np.float32)
    works = {
        "zheng17, 1 thread": lambda adata: zheng17.recipe_zheng17(adata, threads=1),
        "zheng17, 2 threads": lambda adata: zheng17.recipe_zheng17(adata, threads=2),
        "scanpy": sc.pp.recipe_zheng17,
    }
    for work in works.values():
        work(counts[:2000].copy())
    seconds = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            adata = counts.copy()
            started = time.perf_counter()
            work(adata)
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def parts(path, repeats, chunk_rows):
    """What each step costs for one chunk, with one thread of one process: the model's terms."""
    file = zheng17.dask._files[zheng17.dask.read(path, chunk_rows=chunk_rows).X.name].source()
    n_cells, n_genes = file.shape
    chunk = file.part(0, min(chunk_rows, n_cells))
    first_cells = [(first, min(first + chunk_rows, n_cells)) for first in range(0, n_cells, chunk_rows)]
    found = {"chunk_cells": chunk.shape[0], "n_genes": n_genes}
    found["read_s"], (indptr, indices, data) = timed(lambda: _zheng17.select(chunk), repeats)
    found["entries"] = len(data)
    matrix = _zheng17.Source.csr(indptr, indices, data, n_genes, name="X")
    found["summarize_s"], summary = timed(lambda: _zheng17.summarize(matrix), repeats)
    found["summarize_file_s"], _ = timed(lambda: _zheng17.summarize(chunk), repeats)
    found["summary_bytes"] = len(pickle.dumps(summary))
    found["pickle_s"], bytes_of = timed(lambda: pickle.dumps(summary), repeats)
    found["unpickle_s"], _ = timed(lambda: pickle.loads(bytes_of), repeats)
    summaries = [_zheng17.summarize(file.part(*cells)) for cells in first_cells]
    found["merge_s"], merged = timed(lambda: zheng17.Summary.merge(summaries), repeats)
    found["merge_s"] /= len(summaries)
    found["plan_s"], plan = timed(lambda: zheng17.plan_from(merged), repeats)
    found["select_s"], kept = timed(lambda: plan.select(matrix), repeats)
    found["selected_bytes"], found["selected_entries"] = kept.nbytes, len(kept.data)
    found["look_selected_s"], _ = timed(lambda: plan.look(kept), repeats)
    looks = [plan.look(plan.select(file.part(*cells), cells[0])) for cells in first_cells]
    found["selected_summary_bytes"] = len(pickle.dumps(looks[0]))
    seconds, plan = timed(lambda: plan.after(looks), repeats)
    found["plan_s"] += seconds
    found["deviations_s"], moments = timed(lambda: plan.look(kept), repeats)
    found["moments_bytes"] = len(pickle.dumps(moments))
    every = [plan.look(plan.select(file.part(*cells), cells[0])) for cells in first_cells]
    seconds, plan = timed(lambda: plan.after(every), repeats)
    found["plan_s"] += seconds
    found["apply_s"], _ = timed(lambda: plan.chunks.apply(kept), repeats)
    found["plan_bytes"] = len(pickle.dumps(plan.chunks))
    return found


#: Bytes a second between two machines: 10 Gbit Ethernet.
BANDWIDTH = 1.2e9

#: Summaries that one task merges.
MERGED_AT_ONCE = 8


def predicted(terms, overhead_s, n_chunks, size, n_workers, from_file=False):
    """Seconds by the model of docs/dask.md. `size` is that of a chunk over that of the chunk that `terms` are of."""
    rounds = -(-n_chunks // n_workers)
    steps = ("summarize_s", "select_s", "look_selected_s", "deviations_s", "apply_s")
    work = rounds * size * (sum(terms[step] for step in steps) + 2 * terms["read_s"] * from_file)
    # A summary has a few numbers for each gene, whatever the chunk.
    merging = n_chunks / n_workers * (terms["pickle_s"] + terms["unpickle_s"] + terms["merge_s"])
    depth, left = 0, n_chunks
    while left > 1:
        depth, left = depth + 1, -(-left // MERGED_AT_ONCE)
    moving = depth * MERGED_AT_ONCE * terms["summary_bytes"] / BANDWIDTH * (n_workers > 1)
    return terms["plan_s"] + overhead_s * n_tasks(n_chunks) + work + merging + moving


def n_tasks(n_chunks):
    """A chunk has tasks for totals, genes, their totals, their moments and X; each of three reductions has merges."""
    merges, left = 0, n_chunks
    while left > 1:
        left = -(-left // MERGED_AT_ONCE)
        merges += left
    return 5 * n_chunks + 3 * max(merges, 1)


def computed(client, array):
    """Computes an array where the workers are, and lets it go."""
    array = client.persist(array)
    wait(array)
    return array


def received(client):
    """Bytes that workers have got from each other."""
    return sum(client.run(lambda dask_worker: sum(log["total"] for log in dask_worker.transfer_incoming_log)).values())


def of_scanpy(x, obs, var):
    """The steps of the recipe with scanpy's functions that take Dask's arrays; genes are selected on logs, as they want it."""
    adata = anndata.AnnData(x, obs=obs, var=var)
    sc.pp.filter_genes(adata, min_counts=1)
    sc.pp.normalize_total(adata)
    logged = adata.copy()
    sc.pp.log1p(logged)
    sc.pp.highly_variable_genes(logged, flavor="cell_ranger", n_top_genes=1000)
    adata = adata[:, logged.var["highly_variable"].to_numpy()].copy()
    sc.pp.normalize_total(adata)
    sc.pp.log1p(adata)
    sc.pp.scale(adata)
    return adata.X


def on_cluster(path, repeats, chunk_rows, n_workers):
    """The recipe by some workers."""
    cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        lazy = zheng17.dask.read(path, chunk_rows=chunk_rows)
        small = anndata.AnnData(lazy.X[:2000].rechunk((500, -1)))
        zheng17.recipe_zheng17(small)
        computed(client, small.X)

        def from_file():
            adata = lazy.copy()
            zheng17.recipe_zheng17(adata)
            computed(client, adata.X)
            return adata

        found = {}
        found["from file"], adata = timed(from_file, repeats)
        found["digest"] = adata.uns["zheng17"]["summary_sha256"]
        del adata
        x = client.persist(lazy.X)
        wait(x)

        def from_memory():
            adata = anndata.AnnData(x, obs=lazy.obs, var=lazy.var)
            zheng17.recipe_zheng17(adata)
            return computed(client, adata.X)

        before = received(client)
        found["from memory"], _ = timed(from_memory, repeats)
        found["bytes_between_workers"] = (received(client) - before) / repeats
        if n_workers == 2:
            try:
                found["scanpy, from memory"], _ = timed(lambda: computed(client, of_scanpy(x, lazy.obs, lazy.var)), 1)
            except Exception as error:
                found["scanpy, from memory"] = f"{type(error).__name__}: {error}"[:300]
        # Tasks with next to nothing in them.
        tiny = client.persist(lazy.X[:400].rechunk((2, -1)))
        wait(tiny)

        def many():
            adata = anndata.AnnData(tiny)
            zheng17.recipe_zheng17(adata)
            return computed(client, adata.X)

        n_chunks = tiny.numblocks[0]
        seconds, _ = timed(many, repeats)
        found["tasks"] = n_tasks(n_chunks)
        found["overhead_per_task_s"] = seconds / found["tasks"]
        return found


def main():
    path, repeats, chunk_rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    found = {"chunk_rows": chunk_rows, "repeats": repeats, "parts": parts(path, repeats, chunk_rows)}
    found["n_cells"] = zheng17.dask.read(path).n_obs
    for n_workers in (1, 2):
        found[f"{n_workers} workers"] = on_cluster(path, repeats, chunk_rows, n_workers)
    found["in memory"] = in_memory(path, repeats)
    one, two = found["1 workers"], found["2 workers"]
    found["two against one"] = {which: one[which] / two[which] for which in ("from file", "from memory")}
    # Calibrated with one worker alone: what two take, and what the field's benchmark set would take, in chunks of 10,000 cells.
    terms, overhead_s = found["parts"], one["overhead_per_task_s"]
    n_chunks = -(-found["n_cells"] // chunk_rows)
    found["model"] = {
        "here": {
            which: [predicted(terms, overhead_s, n_chunks, 1, n, which == "from file") for n in (1, 2)]
            for which in ("from memory", "from file")
        },
        "1.3 M cells, from memory": {
            n: predicted(terms, overhead_s, 131, 2_624_828_308 / 130.6 / terms["entries"], n)
            for n in (1, 2, 4, 8, 16, 32, 64)
        },
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
