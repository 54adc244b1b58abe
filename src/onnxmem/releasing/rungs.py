"""The steps of releasing, from a deleted name to a process that has ended. Names only: the measured process reads it.

It covers what is commonly tried. Two of the usual steps do not exist as such: sessions have no `clear_cache()`, and
what comes nearest is a run that shrinks the arena; and mapped weights need no process to end, they go with the session.
"""

from __future__ import annotations

DROP, COLLECT, SHRINK, CLOSE, TRIM, UNMAP = (
    "drop references",
    "gc.collect",
    "arena shrinkage",
    "close the session",
    "trim the allocator",
    "unmap",
)
EXIT = "exit"
RUNGS = (DROP, COLLECT, SHRINK, CLOSE, TRIM, UNMAP)
"""In the process, in order."""

ABOUT = {
    DROP: "outputs, and one of two names of the session: del removes a name, not what others hold",
    COLLECT: "finds cycles of Python objects; a session is not in one",
    SHRINK: "one run with memory.enable_memory_arena_shrinkage; there is no clear_cache()",
    CLOSE: "onnxmem.release, or del of the last name: weights, arena and mappings are freed",
    TRIM: "malloc_trim(0): what was freed goes back to the system",
    UNMAP: "maps of weights that outlive the session",
    EXIT: "everything, always; IsolatedSession does it on close()",
}
