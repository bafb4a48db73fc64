"""How the tests compare: AnnData to the last bit, values within the project's tolerance, components up to their signs."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse

ALIGNED = ("obsm", "varm", "layers", "obsp", "varp")


def dense(x) -> np.ndarray:
    """A matrix of any kind as an array."""
    return x.toarray() if sparse.issparse(x) else np.asarray(x)


def assert_same(found, expected) -> None:
    """Two AnnData, or parts of one, are the same to the last bit, in type and place."""
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found, expected)
    elif sparse.issparse(expected):
        assert type(found) is type(expected)
        for part in ("data", "indices", "indptr") if expected.format in ("csr", "csc") else ("data", "row", "col"):
            assert_same(getattr(found, part), getattr(expected, part))
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    elif hasattr(expected, "obs_names"):
        assert (found.shape, found.is_view, found.isbacked) == (expected.shape, expected.is_view, expected.isbacked)
        for part in ("obs", "var", "uns"):
            assert_same(getattr(found, part), getattr(expected, part))
        for part in ALIGNED:
            # Newer AnnData lists X among the layers, without a name.
            assert_same(*({key: value for key, value in getattr(of, part).items() if key} for of in (found, expected)))
        if not expected.isbacked:
            assert_same(found.X, expected.X)
        assert (found.raw is None) == (expected.raw is None)
        if expected.raw is not None:
            assert_same(found.raw.X, expected.raw.X)
            assert_same(found.raw.var, expected.raw.var)
    elif hasattr(expected, "keys"):
        assert set(found) == set(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    else:
        assert found == expected


def assert_close(found, expected, tolerance: float = 1e-5) -> None:
    """Values differ by at most tolerance x (1 + |value|)."""
    found, expected = dense(found).astype(np.float64), dense(expected).astype(np.float64)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def assert_same_components(found, expected, tolerance: float) -> None:
    """Columns are equal but for their signs."""
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    signs = np.sign((found * expected).sum(axis=0))
    assert_close(found, expected * signs, tolerance)


def full(counts, *, layers: bool = True):
    """AnnData that has something everywhere, with names for cells and genes."""
    import anndata

    n_cells, n_genes = counts.shape
    generator = np.random.default_rng(3)
    adata = anndata.AnnData(
        counts.copy(),
        obs=pd.DataFrame(
            {"batch": pd.Categorical(generator.choice(["a", "b"], n_cells))}, index=names("cell", n_cells)
        ),
        var=pd.DataFrame({"chromosome": generator.integers(1, 23, n_genes)}, index=names("gene", n_genes)),
    )
    adata.raw = adata
    adata.uns["note"] = {"list": np.arange(3), "text": "kept"}
    adata.obsm["place"] = generator.normal(size=(n_cells, 2))
    adata.varm["weights"] = generator.normal(size=(n_genes, 3))
    adata.obsp["near"] = sparse.eye(n_cells, format="csr")
    adata.varp["pairs"] = sparse.eye(n_genes, format="csr")
    if layers:
        adata.layers["counts"] = counts.copy()
    return adata


def names(what: str, number: int) -> list[str]:
    """cell0, cell1, ..."""
    return [f"{what}{at}" for at in range(number)]
