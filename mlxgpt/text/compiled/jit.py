"""Python functions -> machine code, made once on a machine and kept in the user's cache folder.

Rules that keep kernels safe and quick to compile:

* Every access goes through an array, and no kernel allocates. A kernel that runs out of room stops
  between two items and says so; Python enlarges the arrays and calls it again.
* A `helper` is called from few places: LLVM optimises it anew for every function that reaches it.
* Positions are int64, hashes and packed bytes uint64, and the two never meet in one expression
  (NumPy's rules would make it float64). An index is written `U(i)`: it needs no test for negatives.
"""

import threading
from collections.abc import Callable
from typing import Any

import numba
from numba.core import config

from mlxgpt.text.compiled.code_cache import code_folder

_OPTIONS: Any = {"error_model": "numpy"}
_NO_WRAPPERS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_CONFIG: Any = config
_decorating = threading.Lock()


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls: without the GIL, with its machine code kept on disk."""
    with _decorating:
        before = _CONFIG.CACHE_DIR
        _CONFIG.CACHE_DIR = str(code_folder())
        try:
            compiled: Any = numba.njit(nogil=True, cache=True, **_OPTIONS)(function)
        except RuntimeError:  # no folder at all can be written: compile in each process
            return numba.njit(nogil=True, **_OPTIONS)(function)
        finally:
            _CONFIG.CACHE_DIR = before
    # The attribute is private to numba, and has been there since there are caches.
    compiled._cache = _ForgivingCache(compiled._cache)
    return compiled


def helper(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call; its `py_func` is the Python function."""
    return numba.njit(**_OPTIONS, **_NO_WRAPPERS)(function)


class _ForgivingCache:
    """numba's cache of one function; a damaged, full or read-only disk costs time, not the run."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, *args: Any) -> Any:
        try:
            return self._cache.load_overload(*args)
        except Exception:  # whatever a damaged file makes of the unpickler
            return None

    def save_overload(self, *args: Any) -> None:
        try:
            self._cache.save_overload(*args)
        except OSError:
            return
