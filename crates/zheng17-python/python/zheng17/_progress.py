"""Progress of long calls, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager


def check_progress(progress) -> None:
    """Refuses what is neither ``None``, nor a bool, nor a function.

    Raises
    ------
    TypeError
        If it is.
    """
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(f"progress must be True, False, None or a function, not {progress!r}")


@contextmanager
def reporter(progress: bool | Callable[[str, int, int], object] | None):
    """What the native half calls with ``(pass, done, total)``, or ``None``.

    ``True`` shows bars of tqdm; a function is called itself.
    """
    check_progress(progress)
    if progress is None or progress is False:
        yield None
    elif callable(progress):
        yield progress
    else:
        bars = _Bars()
        try:
            yield bars
        finally:
            bars.close()


class _Bars:
    """One bar of tqdm for each pass over the cells."""

    def __init__(self):
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            raise ImportError("progress=True needs tqdm: pip install tqdm") from error
        self._tqdm = tqdm
        self._bar = None
        self._pass = None

    def __call__(self, name: str, done: int, total: int) -> None:
        if name != self._pass:
            self.close()
            self._pass = name
            self._bar = self._tqdm(total=total, desc=name, unit=" cells", leave=False)
        if self._bar is not None:
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None
        self._pass = None
