"""Recipe and 50 components through the Python package, beside scanpy on the same counts in the same process, by turns.

Prints medians of seconds as JSON. A first call on a few cells, which compiles scanpy's parts, is not counted, and neither are the
copies that are worked on.

python zheng17_memory.py INPUT REPEATS THREADS
"""

import json
import statistics
import sys
import time
import warnings

warnings.simplefilter("ignore")
import scanpy as sc

import zheng17

path, repeats, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
counts = sc.read_h5ad(path)


def scanpy(solver):
    def work(adata):
        sc.pp.recipe_zheng17(adata)
        sc.pp.pca(adata, n_comps=50, svd_solver=solver)

    return work


def ours(threads, version="exact"):
    return lambda adata: zheng17.recipe_zheng17(adata, n_comps=50, threads=threads, version=version)


programs = {f"zheng17, {n} threads": ours(n) for n in sorted({threads, 1}, reverse=True)}
programs |= {"scanpy, arpack": scanpy("arpack"), "scanpy, covariance_eigh": scanpy("covariance_eigh")}
for work in programs.values():
    work(counts[:2000].copy())

seconds = {name: [] for name in programs}
genes = {}
for _ in range(repeats):
    for name, work in programs.items():
        adata = counts.copy()
        started = time.perf_counter()
        work(adata)
        seconds[name].append(time.perf_counter() - started)
        genes[name] = set(adata.var_names)
        del adata

theirs = genes["scanpy, arpack"]
common = {name: len(found & theirs) for name, found in genes.items()}
print(
    json.dumps(
        {
            "n_cells": counts.n_obs,
            "n_genes": counts.n_vars,
            "n_entries": int(counts.X.nnz),
            "repeats": repeats,
            "seconds": {name: statistics.median(values) for name, values in seconds.items()},
            "genes_of_scanpy": common,
        }
    )
)
