"""One thing that takes memory and need not: what, how much, and the command that changes it."""

from __future__ import annotations

from dataclasses import dataclass

from onnxmem.documents import Record, stored

WORTH = 2**20
"""Less than this is not worth a change."""


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """What a rule found."""

    rule: str
    """The name of the rule's file."""
    what: str
    """What takes the memory, in a few words."""
    evidence: str
    """The figures it follows from, as a sentence."""
    advice: str
    """What to do about it."""
    saving: int = stored("saving_bytes")
    when: str = ""
    """On what the saving depends: "for each further process"; empty if on nothing."""
    command: str
