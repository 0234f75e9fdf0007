"""`mx.fast.metal_kernel`'s twin: the same call, the body compiled by g++ and watched.

The signature is written by MLX's rules: inputs below 8 numbers are `constant`, larger ones
`device`; `NAME_shape` and the attributes of a thread are added if the source names them; template
arguments become constants and types. Pointers and threadgroup arrays become the checked ones of
metal_shim.h.
"""

import atexit
import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

COMPILER = "g++"
AVAILABLE = sys.platform == "linux" and shutil.which(COMPILER) is not None

_TYPES = {
    mx.float32: "float",
    mx.float16: "float16_t",
    mx.bfloat16: "bfloat16_t",
    mx.int32: "int",
}
_IN_CONSTANT_SPACE = 8  # inputs with fewer numbers
_ATTRIBUTES = {
    "threadgroup_position_in_grid": "group_",
    "thread_position_in_threadgroup": "thread_",
    "thread_index_in_simdgroup": "index_ % 32",
    "simdgroup_index_in_threadgroup": "index_ / 32",
    "thread_index_in_threadgroup": "index_",
    "threads_per_threadgroup": "size_",
}
_POISON = 0xFF  # bytes of outputs that nobody writes: NaN


class KernelFault(Exception):
    """A kernel did what a GPU would let pass, or do nobody knows what with."""


class ShimKernel:
    """Call it as what `mx.fast.metal_kernel` returns."""

    def __init__(
        self, *, name: str, input_names: list[str], output_names: list[str], source: str
    ) -> None:
        self.name, self.inputs, self.outputs, self.source = name, input_names, output_names, source
        self.launches = 0

    def __call__(
        self,
        *,
        inputs: list[mx.array],
        template: list[tuple[str, Any]],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        output_shapes: list[tuple[int, ...]],
        output_dtypes: list[mx.Dtype],
    ) -> list[mx.array]:
        assert len(inputs) == len(self.inputs)
        assert len(output_shapes) == len(output_dtypes) == len(self.outputs)
        self.launches += 1
        run = _compiled(self._program(template, inputs, output_dtypes))
        results = [
            np.full(int(np.prod(shape)) * dtype.size, _POISON, np.uint8)
            for shape, dtype in zip(output_shapes, output_dtypes, strict=True)
        ]
        arrays, sizes = [], []
        for name, x in zip(self.inputs, inputs, strict=True):
            arrays.append(_to_numpy(x))
            sizes.append(x.size)
            if f"{name}_shape" in self.source:
                arrays.append(np.array(x.shape, np.int32))
                sizes.append(x.ndim)
        arrays += results
        sizes += [int(np.prod(shape)) for shape in output_shapes]
        fault = run(
            (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays)),
            (ctypes.c_long * len(sizes))(*sizes),
            (ctypes.c_uint * 6)(*grid, *threadgroup),
        )
        if fault is not None:
            raise KernelFault(f"{self.name}: {fault.decode()}")
        return [
            _to_mlx(result, shape, dtype)
            for result, shape, dtype in zip(results, output_shapes, output_dtypes, strict=True)
        ]

    def signature(
        self, inputs: list[mx.array], output_dtypes: list[mx.Dtype]
    ) -> list[tuple[str, str, str]]:
        """Return (address space, type, name) of each buffer, in order."""
        buffers = []
        for name, x in zip(self.inputs, inputs, strict=True):
            space = "constant" if x.size < _IN_CONSTANT_SPACE else "device"
            buffers.append((space, _TYPES[x.dtype], name))
            if f"{name}_shape" in self.source:
                buffers.append(("constant", "int", f"{name}_shape"))
        outputs = zip(self.outputs, output_dtypes, strict=True)
        return buffers + [("device", _TYPES[dtype], name) for name, dtype in outputs]

    def _program(
        self,
        template: list[tuple[str, Any]],
        inputs: list[mx.array],
        output_dtypes: list[mx.Dtype],
    ) -> str:
        """Return the C++ program for one set of template arguments, types and address spaces."""
        lines = ['#include "metal_shim.h"']
        for name, value in template:
            if isinstance(value, mx.Dtype):
                lines.append(f"using {name} = {_TYPES[value]};")
            else:
                lines.append(f"constexpr {type(value).__name__} {name} = {str(value).lower()};")
        lines += [
            'extern "C" const char* run(void** buffers, const long* sizes, const uint* grid) {',
            "    static std::string fault;",
            f"    std::vector<bool> written[{len(self.outputs)}];",
        ]
        buffers = self.signature(inputs, output_dtypes)
        given = len(buffers) - len(self.outputs)
        for i, (space, kind, name) in enumerate(buffers):
            const, flags = ("const ", "nullptr") if i < given else ("", f"&written[{i - given}]")
            if i >= given:
                lines.append(f"    written[{i - given}].assign(sizes[{i}], false);")
            lines.append(
                f"    const shim::Pointer<{const}{kind}, shim::{space}_space> {name}("
                f'static_cast<{const}{kind}*>(buffers[{i}]), sizes[{i}], "{name}", {flags});'
            )
        lines += [
            "    try {",
            "        shim::launch({grid[0], grid[1], grid[2]}, {grid[3], grid[4], grid[5]},",
            "                     [&](uint3 group_, uint3 thread_, uint index_, uint3 size_) {",
            "            (void)group_, (void)thread_, (void)index_, (void)size_;",
        ]
        for name, value in _ATTRIBUTES.items():
            if name in self.source:
                lines.append(f"            const auto {name} = {value};")
        lines += [
            f'#line 1 "{self.name}"',
            checked(self.source),
            "        });",
            "        return nullptr;",
            "    } catch (const std::exception& e) {",
            "        fault = e.what();",
            "        return fault.c_str();",
            "    }",
            "}",
        ]
        return "\n".join(lines) + "\n"


def checked(source: str) -> str:
    """Return a kernel's body with the shim's types for pointers and threadgroup arrays."""
    pointer = r"\b(const )?(device|constant) (\w+)\s*\*\s*(?=\w+\s*[=;])"
    source = re.sub(
        pointer, lambda m: f"shim::Pointer<{m[1] or ''}{m[3]}, shim::{m[2]}_space> ", source
    )
    return re.sub(
        r"\bthreadgroup (\w+) (\w+)\[([^\]]+)\];", r'shim::SharedArray<\1, (\3)> \2("\2");', source
    )


@functools.cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="metal-shim-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def _compiled(program: str) -> Any:
    """Compile a program and return its function, once a process."""
    stem = _folder() / hashlib.sha256(program.encode()).hexdigest()[:16]
    source, library = stem.with_suffix(".cpp"), stem.with_suffix(".so")
    source.write_text(program)
    flags = ["-std=c++14", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    flags += ["-Wno-unused-parameter", "-Wno-clobbered", f"-I{Path(__file__).parent}"]
    done = subprocess.run(
        [COMPILER, *flags, str(source), "-o", str(library)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise KernelFault(f"{COMPILER} refuses the kernel:\n{done.stderr[:3000]}")
    run = ctypes.CDLL(str(library)).run
    run.restype = ctypes.c_char_p
    return run


def _to_numpy(x: mx.array) -> np.ndarray:
    if x.dtype == mx.bfloat16:
        return np.ascontiguousarray(np.array(x.view(mx.uint16)))
    return np.ascontiguousarray(np.array(x))


def _to_mlx(data: np.ndarray, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    if dtype == mx.bfloat16:
        return mx.array(data.view(np.uint16).reshape(shape)).view(mx.bfloat16)
    return mx.array(data.view(np.float16 if dtype == mx.float16 else np.float32).reshape(shape))
