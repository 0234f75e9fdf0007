"""MLX's default device -> whether `mx.compile` fuses operations there, and if not, why.

On a CPU device MLX hands the generated code to `g++` at run time and keeps the result in
`<temporary folder>/mlx`. Where there is no `g++` it silently runs the function as it stands; where
`g++` exists but fails, or the folder cannot be written, the first evaluation raises RuntimeError
(both seen with MLX 0.32.4). So whoever wants `mx.compile` asks here first and says what it found.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass

import mlx.core as mx

COMMAND = "g++"
DISABLE_VARIABLE = "MLX_DISABLE_COMPILE"


@dataclass(frozen=True)
class Compiler:
    """What `mx.compile` can do here; false where functions run eagerly, or cannot run compiled."""

    usable: bool
    why: str
    """The reason, or how it compiles, fit to be read by a user."""
    path: str | None = None
    """The C++ compiler that MLX calls, `None` where it needs or finds none."""

    def __bool__(self) -> bool:
        return self.usable


def compile_available() -> Compiler:
    """Try a small compiled function on the default device and compare it with the eager one.

    Takes half a second where `g++` has to run, a few milliseconds afterwards.
    """
    if os.environ.get(DISABLE_VARIABLE):
        return Compiler(False, f"{DISABLE_VARIABLE} is set")
    on_gpu = mx.default_device().type == mx.DeviceType.gpu
    path = None if on_gpu else shutil.which(COMMAND)
    if not on_gpu and path is None:
        return Compiler(False, f"no {COMMAND} on PATH, which MLX needs on a CPU")
    if path is not None and not _runs(path):
        return Compiler(False, f"'{COMMAND} --version' fails", path)
    try:
        equal = _compiled_equals_eager()
    except RuntimeError as e:
        return Compiler(False, f"{COMMAND if path else 'MLX'} failed: {_gist(str(e))}", path)
    if not equal:
        return Compiler(False, "a compiled function gives other numbers than the eager one", path)
    return Compiler(
        True, "MLX calls it at run time" if path else "built into MLX for this GPU", path
    )


def _runs(path: str) -> bool:
    """Whether the compiler answers; macOS has a `g++` that only asks to install the real one."""
    try:
        command = [path, "--version"]
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _probe(x: mx.array) -> mx.array:
    return mx.sin(x) * 0.75 + mx.square(x)  # sin, so that no kernel of a model has this name


def _compiled_equals_eager() -> bool:
    x = mx.arange(64, dtype=mx.float32) / 16
    return bool(mx.allclose(mx.compile(_probe)(x), _probe(x), rtol=1e-5, atol=1e-5).item())


def _gist(message: str) -> str:
    """Return the compiler's own words out of MLX's error, in one short line."""
    words = message.rpartition("the output is:")[2] or message
    return " ".join(words.split())[:160]
