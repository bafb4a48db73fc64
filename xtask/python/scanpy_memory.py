"""scanpy's recipe and components on counts in memory, warm. Prints medians of seconds as JSON.

A first call on a few cells, which compiles, is not counted, and neither is the copy that the recipe works on.

python scanpy_memory.py INPUT REPEATS
"""

import json
import statistics
import sys
import time
import warnings

warnings.simplefilter("ignore")
import scanpy as sc


def timed(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


counts = sc.read_h5ad(sys.argv[1])
repeats = int(sys.argv[2])
seconds = {"recipe": [], "arpack": [], "covariance_eigh": []}


def measure(adata):
    seconds["recipe"].append(timed(lambda: sc.pp.recipe_zheng17(adata)))
    for solver in ("arpack", "covariance_eigh"):
        seconds[solver].append(timed(lambda: sc.pp.pca(adata, n_comps=50, svd_solver=solver)))


# Compiles; a few cells are enough for that.
measure(counts[:2000].copy())
for _ in range(repeats):
    measure(counts.copy())
medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
print(json.dumps({"repeats": repeats, "seconds": medians}))
