"""The Zheng17 recipe for single-cell counts.

``import zheng17; zheng17.recipe_zheng17(adata)`` does what ``scanpy.pp.recipe_zheng17(adata)`` does, with sums that are exact,
so that the result has the same bits whatever the threads, the chunks or the machine.

==================================  ==============================================================================
:func:`recipe_zheng17`              the recipe on an :class:`anndata.AnnData`, in scanpy's signature
:func:`run`, :func:`plan`           from file to file, in bounded memory; what that would take
:func:`backends`                    what computes
:func:`load_plugin`                 another backend, from a shared library
==================================  ==============================================================================
"""


from zheng17._files import backends, load_plugin, plan, run
from zheng17._recipe import recipe_zheng17
from zheng17._zheng17 import Moments, Summary, __version__

__all__ = [
    "Moments",
    "Summary",
    "__version__",
    "backends",
    "load_plugin",
    "plan",
    "recipe_zheng17",
    "run",
]
