"""Whether the kernels' text looks like Metal, and whether MLX writes the signature that we expect.

No Metal compiler is at hand where this runs; the tests marked `metal` have one.
"""

import re
from pathlib import Path

import mlx.core as mx
import pytest
from metal_shim.shim_kernel import AVAILABLE, ShimKernel

from mlxgpt.infer.paged import paged_kernel
from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.kernel_work import ITEM, kernel_work
from mlxgpt.infer.paged.paged_kernel import (
    MOST_SEGMENTS,
    KernelShape,
    PagedKernel,
    WorkArrays,
    attention_source,
    source_hash,
)
from mlxgpt.infer.paged.step_attention import StepRow

FOLDER = Path(paged_kernel.__file__).parent
MERGE = (FOLDER / "merge_parts.metal").read_text()
SOURCES = {"one array": attention_source(1), "eight": attention_source(8), "merge": MERGE}
CALLS = {"metal::sqrt", "metal::exp", "metal::min", "metal::max", "simd_sum"}
CALLS |= {"threadgroup_barrier", "float", "size_t", "O", "for", "if"}
# What C++ has and Metal has not, or what older systems' Metal has not.
FOREIGN = (
    r"\b(double|long|auto|new|delete|throw|try|goto|virtual|std|printf|static|template|lambda)\b"
)
# Metal's reserved words that a variable must not be called.
RESERVED = r"\b(kernel|vertex|fragment|device|constant|threadgroup|thread|half|sampler|access)\b"


def code(source: str) -> str:
    return re.sub(r"//.*", "", source)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_it_looks_like_metal(source: str) -> None:
    text = code(source)
    assert not re.search(FOREIGN, text)
    assert not re.search(r"\bif\s+constexpr|\[[&=]?\]|->|\?\?|#", text)
    assert not re.search(r"\d\.\d*(?![\df])", text), "a number without f"
    assert set(re.findall(r"([\w:]+)\s*\(", text)) <= CALLS
    declared = re.findall(r"(?:float|int|bool|size_t|T\*|int\*)\s+(\w+)\s*[\[=;]", text)
    assert len(declared) > 10
    assert not [name for name in declared if re.fullmatch(RESERVED, name)]
    for open_, close in ("()", "[]", "{}"):
        assert text.count(open_) == text.count(close)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_threadgroup_memory_is_declared_outermost_and_barriers_are_reached_by_all(
    source: str,
) -> None:
    depth = 0
    for line in code(source).splitlines():
        if line.strip().startswith("threadgroup "):
            assert depth == 0
        if "threadgroup_barrier" in line:
            assert depth == 1, (
                "only inside of the loop over the queries, which all threads go through"
            )
        depth += line.count("{") - line.count("}")


def test_a_threadgroup_fits_into_a_gpu() -> None:
    for head_dim in range(32, 257, 32):
        memory = 4 * paged_kernel.SIMDGROUPS * (2 + head_dim)
        assert memory <= 32768
        held = KernelShape(mx.float32, head_dim, 8, 16).queries * head_dim // 32
        assert held <= 16, "registers"
    assert paged_kernel.SIMDGROUPS * paged_kernel.LANES <= 1024
    assert 2 * MOST_SEGMENTS + 4 <= 31, "buffers"


def test_each_array_of_the_pool_is_looked_up() -> None:
    for segments in range(1, MOST_SEGMENTS + 1):
        text = attention_source(segments)
        assert set(re.findall(r"\bpool\d+\b", code(text))) == {f"pool{i}" for i in range(segments)}
    with pytest.raises(AssertionError):
        attention_source(MOST_SEGMENTS + 1)


def test_the_items_are_read_in_full() -> None:
    read = {int(i) for i in re.findall(r"item\[(\d+)\]", attention_source(1))}
    assert read == set(range(ITEM))


def test_the_hash_is_of_all_that_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = {source_hash()}
    for name in ("_SEGMENT", "SIMDGROUPS", "_STRETCH", "_HELD", "ITEM"):
        monkeypatch.setattr(paged_kernel, name, 3)
        hashes.add(source_hash())
    for name in ("paged_attention.metal", "merge_parts.metal"):
        texts = {
            n: (FOLDER / n).read_text() for n in ("paged_attention.metal", "merge_parts.metal")
        }
        texts[name] += " "
        monkeypatch.setattr(paged_kernel, "_text", texts.__getitem__)
        hashes.add(source_hash())
    assert len(hashes) == 8


def test_mlx_takes_our_arguments_and_writes_the_signature_that_the_shim_has(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """MLX writes a kernel out even where it cannot run it, while a function is exported."""
    shape, shims = KernelShape(mx.float16, 64, 3, 16), []

    def make(**arguments) -> object:  # pyright: ignore[reportMissingParameterType]
        theirs, ours = mx.fast.metal_kernel(**arguments), ShimKernel(**arguments)

        def launch(**call):  # pyright: ignore[reportMissingParameterType]
            shims.append(ours.signature(call["inputs"], call["output_dtypes"]))
            return theirs(**call, verbose=True)  # pyright: ignore[reportCallIssue]

        return launch

    rows = [StepRow(BlockTable([4, 1, 2], 41), 1)]
    work = kernel_work(rows, window=None, block_size=16, group=3, kv_heads=2, queries=4, fewest=16)
    kernel = PagedKernel(shape, make)  # pyright: ignore[reportArgumentType]
    q = mx.zeros((1, 6, 64), dtype=mx.float16)
    pools = [mx.zeros((4, blocks * 16, 64), dtype=mx.float16) for blocks in (2, 3)]

    def function(*arrays: mx.array) -> mx.array:
        return kernel(arrays[0], list(arrays[1:]), WorkArrays(work))

    mx.export_function(str(tmp_path / "function"), function, q, *pools)
    written = capfd.readouterr().out
    bodies = re.findall(r"\[\[kernel\]\] void \w+\(\n(.*?)\) \{\n(.*?)\n```", written, re.DOTALL)
    assert [body.count("simd_sum") for _, body in bodies] == [1, 0]
    for (parameters, _), expected in zip(bodies, shims, strict=True):
        buffers = re.findall(r"(?:const )?(device|constant) (\w+)\* (\w+) \[\[buffer", parameters)
        theirs = [(space, kind.replace("int32_t", "int"), name) for space, kind, name in buffers]
        assert theirs == expected
        others = re.findall(r"(uint3?) (\w+) \[\[\2\]\]", parameters)
        assert len(theirs) + len(others) == len(parameters.splitlines())
    assert [name for _, _, name in shims[0]].count("pool1_shape") == 1


@pytest.mark.skipif(not AVAILABLE, reason="needs g++ on Linux")
def test_small_inputs_come_in_another_address_space_and_none_of_ours_is_small() -> None:
    small = ShimKernel(name="a", input_names=["x"], output_names=["y"], source="y[0] = x[0];")
    assert small.signature([mx.zeros(7)], [mx.float32])[0] == ("constant", "float", "x")
    assert small.signature([mx.zeros(8)], [mx.float32])[0] == ("device", "float", "x")
    rows = [StepRow(BlockTable([0], 1), 1)]
    work = kernel_work(rows, window=None, block_size=16, group=1, kv_heads=1, queries=1)
    arrays = WorkArrays(work)
    assert min(arrays.plan.size, arrays.first_parts.size) >= 8
