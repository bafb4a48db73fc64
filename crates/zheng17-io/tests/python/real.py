"""Writes what anndata and scanpy read from real files, as texts to compare with.

    python real.py FOLDER SHARED

FOLDER/list.tsv is as that of layouts.py, with whole paths.
"""

import os
import sys

import anndata as ad
import h5py
import pandas as pd
import scanpy as sc

from dump import dump

OUT, SHARED = sys.argv[1:]
DATA = os.path.join(SHARED, "data")
LIST = []


def expect(path, matrix, obs, var, layer="", raw="", genome="", feature=""):
    key = "-".join(part for part in (os.path.basename(path), layer, raw, genome, feature) if part)
    with open(os.path.join(OUT, key + ".expected"), "w", encoding="utf-8") as file:
        file.write(dump(matrix, obs, var))
    LIST.append("\t".join((path, layer, raw, genome, feature, key)))


def as_written(frame, path, key):
    """anndata makes texts of legacy files categorical; files say which columns are."""
    with h5py.File(path) as file:
        node = file[key]
        if isinstance(node, h5py.Group):
            return frame
        texts = [name for name in frame if node.dtype.fields.get(name, (None,))[0] is not None and node.dtype[name].kind in "SO"]
        return frame.astype({name: object for name in texts})


# NaN has many bit patterns, a frame without index is nothing for anndata, and one file has no X.
NOT_COMPARED = ["nan_value", "test_no_index", "v0.11.4"]
for folder, _, names in os.walk(DATA):
    for name in sorted(names):
        path = os.path.join(folder, name)
        if not name.endswith(".h5ad"):
            continue
        if any(part in name for part in NOT_COMPARED):
            continue
        data = ad.read_h5ad(path)
        obs, var = as_written(data.obs, path, "obs"), as_written(data.var, path, "var")
        expect(path, data.X, obs, var)
        for layer, values in data.layers.items():
            if layer is not None:
                expect(path, values, obs, var, layer=layer)
        if data.raw is not None:
            with h5py.File(path) as file:
                key = "raw.var" if "raw.var" in file else "raw/var"
            expect(path, data.raw.X, obs, as_written(data.raw.var, path, key), raw="raw")

for name in sorted(os.listdir(DATA)):
    path = os.path.join(DATA, name)
    if name.endswith("10xv3.h5") or "3.0.0_filtered" in name:
        data = sc.read_10x_h5(path, gex_only=False)
        expect(path, data.X, data.obs, data.var, feature="all")
        data = sc.read_10x_h5(path)
        expect(path, data.X, data.obs, data.var)
    elif name.endswith("10xv2.h5") or (name.startswith("scanpy_1.2.0") and name.endswith(".h5")):
        with h5py.File(path) as file:
            genomes = [key for key in file if isinstance(file[key], h5py.Group)]
        for genome in genomes:
            data = sc.read_10x_h5(path, genome=genome)
            expect(path, data.X, data.obs, data.var, genome=genome)

with open(os.path.join(OUT, "list.tsv"), "w") as file:
    file.write("\n".join(LIST) + "\n")
