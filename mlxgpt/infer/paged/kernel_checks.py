"""The paged attention kernel, tried on this device for a report; nothing is remembered."""

from mlxgpt.infer.paged.kernel_proof import ALLOWED, on_apple_gpu, prove
from mlxgpt.infer.paged.paged_kernel import KernelMaker, KernelShape, PagedKernel
from mlxgpt.machine.device_check import DeviceCheck, skipped

_COMPARED = "kernel against its formula"
_SHAPES = ((64, 3), (128, 4))
"""(head size, query heads of a group) that are tried in each precision."""


def check_kernel(make: KernelMaker | None = None) -> list[DeviceCheck]:
    """Compile the kernel and compare it, in each precision; skipped without an Apple GPU."""
    if not on_apple_gpu():
        return [skipped("paged attention", _COMPARED, "no Apple GPU: the plain path serves")]
    checks = []
    for dtype, allowed in ALLOWED.items():
        proofs = [prove(PagedKernel(KernelShape(dtype, d, g, 16), make)) for d, g in _SHAPES]
        # The worst is the first that failed, or else the one that is farthest off.
        worst = max(proofs, key=lambda p: (p.reason is not None, p.difference))
        name = f"paged attention, {str(dtype).removeprefix('mlx.core.')}"
        state = "ok" if worst.reason is None else "failed"
        checks.append(DeviceCheck(name, _COMPARED, state, worst.difference, allowed, worst.reason))
    return checks
