"""How much does this process grow inside a block, and by what? For tests that run sessions in their own process."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from types import TracebackType

from onnxmem.measurement import probes, smaps
from onnxmem.session.trim import trim
from onnxmem.units import format_bytes
from onnxmem.unknown import Bytes, Unknown, subtract

# Less than this is nobody's part of the answer.
_WORTH = 2**18


class Watch:
    """`with Watch() as watch: …`, then `watch.growth` is the peak RSS inside the block − RSS before it."""

    def __init__(self) -> None:
        self.growth: Bytes = Unknown("the watched block has not ended")
        self.kept: Bytes = self.growth
        """What of it was still there at the end of the block."""
        self.parts: Mapping[str, int] = {}
        """By how much each kind of memory was more at the end than before."""
        self.method = ""

    def __enter__(self) -> Watch:
        # What earlier tests left in the heap would be used again, and this one would look smaller than it is.
        _kinds()  # what reading takes is there before, and not only after
        gc.collect()
        trim()
        self._kinds = _kinds()
        self._before = probes.read().rss
        self._peak = probes.PeakWatch().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._peak.__exit__(kind, error, None)
        peak = self._peak.peak
        self.growth, self.method = subtract(peak.rss, self._before), "" if peak.exact else peak.method
        self.kept = subtract(probes.read().rss, self._before)
        after = _kinds()
        self.parts = {name: after[name] - self._kinds.get(name, 0) for name in after}

    def excess(self, limit: int) -> str:
        """What to say if it grew by more than the limit; nothing if it did not, or nobody knows."""
        if isinstance(self.growth, Unknown) or self.growth <= limit:
            return ""
        lines = [
            f"memory grew by {format_bytes(self.growth)}, and {format_bytes(limit)} are allowed: "
            f"{format_bytes(self.growth - limit)} too much (peak RSS − RSS before)"
        ]
        if isinstance(self.kept, int) and self.kept >= _WORTH:
            largest = sorted((part for part in self.parts.items() if part[1] >= _WORTH), key=lambda part: -part[1])
            parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in largest)
            kept = f"at its end {format_bytes(self.kept)} of it were still there"
            lines.append(f"{kept}: {parts}" if parts else kept)
        elif isinstance(self.kept, int):
            lines.append("at its end it was all given back")
        return "\n".join([*lines, *([self.method] if self.method else [])])


def _kinds() -> dict[str, int]:
    kinds = smaps.classify()
    return {} if isinstance(kinds, Unknown) else {kind.name: kind.rss for kind in kinds}
