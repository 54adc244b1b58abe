"""How do I really unload a session? `release(session)` closes it although others hold it, and gives the memory back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxmem.documents import Record
from onnxmem.measurement import probes
from onnxmem.measurement.probes import Reading
from onnxmem.releasing.close import close, is_released
from onnxmem.releasing.live_outputs import LiveOutput, Outputs
from onnxmem.session.trim import trim
from onnxmem.units import format_bytes
from onnxmem.unknown import Bytes, Unknown, subtract


@dataclass(frozen=True, kw_only=True)
class Released(Record):
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
    """Its outputs that are still referred to: each keeps the whole arena it lies in."""

    @property
    def freed(self) -> Bytes:
        """Resident memory (RSS) given back."""
        return subtract(self.before.rss, self.after.rss)

    @property
    def freed_anon(self) -> Bytes:
        """Of it anonymous: heap and arenas."""
        return subtract(self.before.anon, self.after.anon)

    @property
    def freed_file(self) -> Bytes:
        """Of it file-backed: mapped weights."""
        return subtract(self.before.file, self.after.file)

    def derived(self) -> Mapping[str, Any]:
        """What was freed."""
        return {
            "freed_bytes": self.freed,
            "freed_anon_bytes": self.freed_anon,
            "freed_file_bytes": self.freed_file,
            "text": str(self),
        }

    def __str__(self) -> str:
        if self.already:
            return "the session had been released before"
        if self.held_by:
            return f"the session is still alive: it is held by {', '.join(self.held_by)}"
        kept = f"; still alive: {', '.join(map(str, self.live_outputs))}" if self.live_outputs else ""
        return f"released {amount(self.freed)} of resident memory{kept}"


def release(session: Any) -> Released:
    """Close a session that the caller holds: destroy it, collect garbage, trim the allocator, say what came back.

    Works for `onnxruntime.InferenceSession`, its subclasses, and `IsolatedSession`. The Python object stays, as others
    may hold it; using it raises `SessionClosed`. Releasing it again is harmless.
    """
    before = probes.read()
    already, outputs = is_released(session), Outputs(session)
    held_by = () if already else close(session)
    trimmed = trim()
    after = probes.read()
    return Released(
        before=before,
        after=after,
        already=already,
        trimmed=trimmed,
        held_by=held_by,
        live_outputs=() if already else outputs.alive(),
    )


def amount(value: Bytes) -> str:
    """A size in a sentence."""
    return "an unknown amount" if isinstance(value, Unknown) else format_bytes(value)
