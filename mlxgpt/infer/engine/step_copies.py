"""Block copies in the order they were decided -> copies that can all be made at once. No MLX."""

from collections.abc import Iterable

from mlxgpt.infer.paged.blocks import Copy


class StepCopies:
    """The copies of one step.

    The pool reads all sources before it writes. But a block that was copied to may be copied from,
    or be given back and copied to again, before the step begins. So a source is traced to where
    its content lies now, and of two copies to one block the later holds.
    """

    def __init__(self) -> None:
        self._into: dict[int, Copy] = {}

    def add(self, copies: Iterable[Copy]) -> None:
        """Take copies that come after all those before."""
        for copy in copies:
            earlier = self._into.get(copy.source)
            source = copy.source if earlier is None else earlier.source
            self._into.pop(copy.target, None)
            self._into[copy.target] = Copy(source, copy.target, copy.count)

    def at_once(self) -> list[Copy]:
        """Return copies to different targets, which all read what was there before the step."""
        return [copy for copy in self._into.values() if copy.source != copy.target]
