"""Two ways to compute the same -> how far apart they are on this device, and if that is well."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

HALF_AGAINST_FLOAT32 = "half precision against float32"
"""What more than one check compares; a report puts those under one heading."""


@dataclass(frozen=True)
class DeviceCheck:
    """One comparison, with its outcome. A `failed` one means that results cannot be trusted."""

    name: str
    compared: str
    """What with what."""
    state: Literal["ok", "failed", "skipped"]
    difference: float | None = None
    """The largest difference, relative to numbers above 1; None if it was not computed."""
    allowed: float | None = None
    """The largest difference that rounding explains."""
    reason: str | None = None
    """Why it was skipped, or what was raised."""

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON, which knows neither infinities nor NaN: those become null."""
        report = asdict(self)
        if self.difference is not None and not np.isfinite(self.difference):
            report["difference"] = None
        return report


def check(name: str, compared: str, allowed: float, difference: Callable[[], float]) -> DeviceCheck:
    """Compute a difference and judge it; whatever is raised is a failure, NaN as well."""
    try:
        found = difference()
    except Exception as e:  # whatever MLX raises: a report has to be finished
        words = " ".join(str(e).split())[:200]
        return DeviceCheck(
            name, compared, "failed", allowed=allowed, reason=f"{type(e).__name__}: {words}"
        )
    state = "ok" if found <= allowed else "failed"
    return DeviceCheck(name, compared, state, found, allowed)


def skipped(name: str, compared: str, reason: str) -> DeviceCheck:
    """Return a check that makes no sense here."""
    return DeviceCheck(name, compared, "skipped", reason=reason)


def apart(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference, relative to numbers above 1; NaN where either has one."""
    return float(np.max(np.abs(got - wanted) / np.maximum(1, np.abs(wanted))))
