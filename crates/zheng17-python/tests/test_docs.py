"""Examples in docstrings and READMEs run and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import warnings
from pathlib import Path

import anndata
import numpy as np
import pytest

import zheng17

MODULES = [f"zheng17.{module.name}" for module in pkgutil.iter_modules(zheng17.__path__) if module.name != "_zheng17"]
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", ["zheng17", *MODULES])
def test_examples_in_docstrings(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"needs {error.name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    examples = [
        test for name in ("zheng17._recipe", "zheng17.pp") for test in finder.find(importlib.import_module(name))
    ]
    assert sum(len(test.examples) for test in examples) > 20


@pytest.mark.parametrize("readme", [README, README.parents[2] / "README.md"], ids=lambda path: path.parent.name)
def test_python_in_readmes(readme, counts, tmp_path, monkeypatch):
    pytest.importorskip("scanpy")
    monkeypatch.chdir(tmp_path)
    adata = anndata.AnnData(np.random.default_rng(1).poisson(0.5, (300, 2000)).astype(np.float32))
    adata.write_h5ad("counts.h5ad")
    zheng17.run("counts.h5ad", "processed.h5ad", n_comps=50)
    blocks = readme.read_text().split("```python\n")[1:]
    assert blocks
    space: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in blocks:
            exec(compile(block.split("```")[0], str(readme), "exec"), space)
