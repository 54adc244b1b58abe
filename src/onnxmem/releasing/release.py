"""How do I really unload a session? `release(session)` closes it although others hold it, and gives the memory back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnxmem.measurement import probes
from onnxmem.measurement.probes import Reading
from onnxmem.releasing.close import close, is_released
from onnxmem.releasing.live_outputs import LiveOutput, live_outputs
from onnxmem.session.trim import trim
from onnxmem.units import format_bytes
from onnxmem.unknown import Bytes, Unknown


@dataclass(frozen=True)
class Released:
    """What releasing a session gave back, in bytes, and what stands in the way of more."""

    before: Reading
    after: Reading
    already: bool
    """It had been released before; nothing was done."""
    trimmed: bool | Unknown
    """Whether the C library had freed memory to give back."""
    held_by: tuple[str, ...]
    """What keeps the native session alive in spite of all; empty when it was destroyed."""
    live_outputs: tuple[LiveOutput, ...]
    """Outputs that are still referred to: each keeps the whole arena it lies in."""

    @property
    def freed(self) -> Bytes:
        """Resident memory (RSS) given back."""
        return difference(self.before.rss, self.after.rss)

    @property
    def freed_anon(self) -> Bytes:
        """Of it anonymous: heap and arenas."""
        return difference(self.before.anon, self.after.anon)

    @property
    def freed_file(self) -> Bytes:
        """Of it file-backed: mapped weights."""
        return difference(self.before.file, self.after.file)

    def __str__(self) -> str:
        if self.already:
            return "the session had been released before"
        if self.held_by:
            return f"the session is still alive: it is held by {', '.join(self.held_by)}"
        freed = "an unknown amount" if isinstance(self.freed, Unknown) else format_bytes(self.freed)
        kept = f"; still alive: {', '.join(map(str, self.live_outputs))}" if self.live_outputs else ""
        return f"released {freed} of resident memory{kept}"


def release(session: Any) -> Released:
    """Close a session that the caller holds: destroy it, collect garbage, trim the allocator, say what came back.

    Works for `onnxruntime.InferenceSession`, its subclasses, and `IsolatedSession`. The Python object stays, as others
    may hold it; using it raises `SessionClosed`. Releasing it again is harmless.
    """
    before = probes.read()
    already = is_released(session)
    held_by = () if already else close(session)
    trimmed = trim()
    after = probes.read()
    return Released(before, after, already, trimmed, held_by, () if already else live_outputs())


def difference(before: Bytes, after: Bytes) -> Bytes:
    """How much less it is now."""
    if isinstance(before, Unknown):
        return before
    return after if isinstance(after, Unknown) else before - after
