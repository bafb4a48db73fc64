"""The Zheng17 recipe for single-cell counts.

``import zheng17; zheng17.recipe_zheng17(adata)`` does what ``scanpy.pp.recipe_zheng17(adata)`` does, with sums that are exact,
so that the result has the same bits whatever the threads, the chunks or the machine.

==================================  ==============================================================================
:func:`recipe_zheng17`              the recipe on an :class:`anndata.AnnData`, in scanpy's signature
:mod:`zheng17.pp`                   its single steps, in scanpy's signatures
:func:`run`, :func:`plan`           from file to file, in bounded memory; what that would take
:func:`backends`                    what computes
:func:`load_plugin`                 another backend, from a shared library
:mod:`zheng17.dask`                 matrices in chunks of Dask, on one machine or many
:func:`summarize`, :func:`plan_from`,
:func:`apply`                       the steps by themselves, on chunks, for an engine of your own
==================================  ==============================================================================
"""

from zheng17 import pp
from zheng17._chunks import Plan, apply, plan_from, summarize
from zheng17._files import backends, load_plugin, plan, run
from zheng17._recipe import recipe_zheng17
from zheng17._zheng17 import Moments, Summary, __version__

__all__ = [
    "Moments",
    "Plan",
    "Summary",
    "__version__",
    "apply",
    "backends",
    "load_plugin",
    "plan",
    "plan_from",
    "pp",
    "recipe_zheng17",
    "run",
    "summarize",
]
