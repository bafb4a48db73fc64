"""What `zheng17 run INPUT -o OUTPUT --pca 50` does, by scanpy. Prints the seconds of each step as JSON.

python scanpy_file.py INPUT OUTPUT SOLVER
"""

import json
import sys
import time
import warnings

warnings.simplefilter("ignore")
seconds = {}


def step(name, work):
    started = time.perf_counter()
    result = work()
    seconds[name] = time.perf_counter() - started
    return result


def imports():
    import scanpy

    return scanpy


source, target, solver = sys.argv[1:]
sc = step("start", imports)
adata = step("read", lambda: sc.read_h5ad(source))
step("recipe", lambda: sc.pp.recipe_zheng17(adata))
step("PCA", lambda: sc.pp.pca(adata, n_comps=50, svd_solver=solver))
step("write", lambda: adata.write_h5ad(target))
print(json.dumps({"steps": seconds}))
