"""A process that has not imported MLX -> one whose matrix products on a Linux CPU are fast.

MLX's Linux wheel links the reference BLAS, 20 to 40 times slower than a good one. The dynamic
linker takes the first global definition of `cblas_sgemm` and its kin, so a good library loaded
before the first `import mlx.core` wins; Python binds at once, so afterwards it is too late. On a
Mac MLX uses Metal and Accelerate, and nothing of this runs.

`MLXGPT_BLAS` says which: `auto` (the default), `off`, or a shared library.
"""

import ctypes
import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlxgpt.errors import ConfigError
from mlxgpt.machine.cache import cache_dir
from mlxgpt.machine.openblas import PreparationError, Wheel, find_wheel, prepare

BLAS_VARIABLE = "MLXGPT_BLAS"
SYSTEM_LIBRARY = "libopenblas.so.0"  # the name in Debian, Ubuntu, Fedora, Arch


@dataclass(frozen=True)
class BlasInfo:
    """The BLAS behind MLX's CPU device."""

    name: str
    """`OpenBLAS`, `Accelerate`, `reference` (MLX's own, slow) or the name of another library."""
    why: str
    """The reason for this choice, fit to be read by a user."""
    path: Path | None = None
    """The library's file, `None` for what comes with MLX or the system."""
    config: str | None = None
    """The library's own words on its version and build."""
    core: str | None = None
    """The processor family whose kernels it chose."""
    threads: int | None = None
    """The number of threads of one product, `None` where it cannot be known."""
    fast: bool = True
    """Whether products run near the speed of the machine."""


_library: ctypes.CDLL | None = None  # a process can load one only once: a fact, not a setting
_info: BlasInfo | None = None


def preload_blas() -> BlasInfo:
    """Load a fast BLAS before MLX, once a process, and return what is in use.

    Costs a millisecond, and half a second with one line on stderr the first time on a machine.
    Never fails for want of a fast library: then MLX's own is used, with the reason on stderr.
    Raises `ConfigError` where `MLXGPT_BLAS` names a library that cannot be used.
    """
    global _info
    if _info is None:
        _info = _choose()
        if not _info.fast and os.environ.get(BLAS_VARIABLE, "auto") != "off":
            _notice(f"matrix products on the CPU will be slow: {_info.why}")
    return _info


def blas_in_use() -> BlasInfo:
    """Return what `preload_blas` chose, with the present number of threads."""
    return replace(preload_blas(), threads=blas_threads())


def blas_threads() -> int | None:
    """Return the number of threads of a matrix product, `None` where it cannot be known."""
    get = _function("openblas_get_num_threads")
    return get() if get is not None else None


def set_blas_threads(threads: int) -> int | None:
    """Let matrix products use `threads` threads and return the number before.

    For processes that share a machine: give each its part of the cores. Does nothing and returns
    `None` where the BLAS has no such switch. Raises `ConfigError` below 1.
    """
    if threads < 1:
        raise ConfigError(f"a BLAS needs at least 1 thread, got {threads}")
    before, put = blas_threads(), _function("openblas_set_num_threads")
    if before is not None and put is not None:
        put(threads)
    return before


def _choose() -> BlasInfo:
    if sys.platform == "darwin":
        return BlasInfo("Accelerate", "part of macOS; on the GPU MLX has kernels of its own")
    if sys.platform != "linux":
        return BlasInfo("unknown", "only Linux needs another BLAS than MLX brings")
    wanted = os.environ.get(BLAS_VARIABLE) or "auto"
    if wanted == "off":
        return _reference(f"{BLAS_VARIABLE} is off")
    # Whoever loaded a BLAS for the whole process (LD_PRELOAD) knows what they want.
    if wanted == "auto" and _has(ctypes.CDLL(None), "cblas_sgemm"):
        return _describe(ctypes.CDLL(None), None, "the process had loaded it already")
    if "mlx.core" in sys.modules:
        return _reference("mlx.core was imported before mlxgpt; import mlxgpt first")
    if wanted != "auto":
        return _chosen_by_user(wanted)
    reasons = []
    for attempt in (_from_wheel, _from_system):
        try:
            return attempt()
        except (PreparationError, OSError) as e:
            reasons.append(str(e))
    return _reference("; ".join(reasons))


def _reference(why: str) -> BlasInfo:
    return BlasInfo("reference", why, fast=False)


def _chosen_by_user(wanted: str) -> BlasInfo:
    path = os.path.expanduser(wanted)
    try:
        return _load(path, f"{BLAS_VARIABLE} names it")
    except OSError as e:
        raise ConfigError(
            f"{BLAS_VARIABLE} must be 'auto', 'off' or a BLAS library with the plain CBLAS names; "
            f"'{wanted}' cannot be used: {e}"
        ) from None


def _from_wheel() -> BlasInfo:
    """Load the prepared library of the wheel; prepare it first where the cache has none."""
    wheel = find_wheel()
    if wheel is None:
        raise PreparationError("the package scipy-openblas32 is not installed")
    why = f"from the package scipy-openblas32 {wheel.version}"
    folder = cache_dir() / "blas"
    ready = folder / wheel.prepared_name
    if ready.exists():
        try:
            return _load(str(ready), why)
        except OSError:  # damaged, or from a machine that shares the folder: make it again
            pass
    _notice("preparing a fast BLAS for this machine, once ...")
    try:
        return _load(str(prepare(wheel, folder)), why)
    except (PreparationError, OSError) as e:
        return _uncached(wheel, why, f"{folder} cannot keep the fast BLAS ({e})")


def _uncached(wheel: Wheel, why: str, trouble: str) -> BlasInfo:
    """Load a copy that lives only as long as this process."""
    with tempfile.TemporaryDirectory(prefix="mlxgpt-blas-") as folder:
        info = _load(str(prepare(wheel, Path(folder))), f"{why}, made anew: {trouble}")
    _notice(f"{trouble}; it is made anew in each process. Set MLXGPT_CACHE to another folder.")
    return replace(info, path=None)


def _from_system() -> BlasInfo:
    return _load(SYSTEM_LIBRARY, "the system's own")


def _load(path: str, why: str) -> BlasInfo:
    """Load `path` for the whole process. Raises `OSError` where it is no library or no CBLAS."""
    # First without publishing its names, so that a library of another kind leaves no trace.
    if not _has(ctypes.CDLL(path), "cblas_sgemm"):
        raise OSError(f"{path} exports no cblas_sgemm")
    return _describe(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL), path, why)


def _describe(library: ctypes.CDLL, path: str | None, why: str) -> BlasInfo:
    global _library
    _library = library
    config, core = _text("openblas_get_config"), _text("openblas_get_corename")
    name = "OpenBLAS" if config else Path(path).name if path else "another BLAS"
    return BlasInfo(name, why, Path(path) if path else None, config, core)


def _has(library: ctypes.CDLL, name: str) -> bool:
    try:
        library[name]
    except AttributeError:
        return False
    return True


def _function(name: str) -> Any:
    """Return the loaded library's function, or `None` where it has none of this name."""
    return _library[name] if _library is not None and _has(_library, name) else None


def _text(name: str) -> str | None:
    function = _function(name)
    if function is None:
        return None
    function.restype = ctypes.c_char_p
    return function().decode("utf-8", "replace")


def _notice(text: str) -> None:
    print(f"mlxgpt: {text}", file=sys.stderr)
