"""A plan to explore: its buffers, the nodes that make and read them, and what is alive at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from onnxmem.app.jobs import Document
from onnxmem.report.charts.live_map import relatives
from onnxmem.report.report import Chart
from onnxmem.report.sections import section

Window = tuple[float, float] | None
"""Steps in sight, from and to; None for all."""


@dataclass(frozen=True)
class Placed:
    """The plan that an estimate or a plan's document holds."""

    chart: Chart
    """The memory map of it."""
    schedule: Sequence[Document]
    """The nodes, one for every step; empty where the document does not list them."""

    @classmethod
    def of(cls, document: Document) -> Placed | None:
        """None for a document whose buffers are not listed: there are none, or too many."""
        chart = next((each for each in section(document).charts if each.kind == "memory map"), None)
        holder = document.get("activations") or document
        return cls(chart, holder.get("schedule") or ()) if chart else None

    @property
    def rows(self) -> Sequence[Document]:
        """The buffers, as documents have them."""
        placement: Sequence[Document] = self.chart.document["placement"]
        return placement

    @cached_property
    def relatives(self) -> list[dict[str, list[int]]]:
        """For each buffer what it is made from, and what is made from it."""
        return relatives(self.rows)

    @cached_property
    def live(self) -> list[int]:
        """The bytes alive at every step."""
        changes = [0] * (max((row["upper"] for row in self.rows), default=0) + 1)
        ends = {row["name"]: row["upper"] for row in self.rows}
        for index, row in enumerate(self.rows):
            changes[row["lower"]] += self._footprint(index)
            changes[row["upper"]] -= self._footprint(index)
            if row.get("over"):
                # Until that is freed, it takes nothing: it lies in its place.
                changes[row["lower"]] -= self._footprint(index)
                changes[ends[row["over"]]] += self._footprint(index)
        return list(accumulate(changes))[:-1]

    @property
    def peak_step(self) -> int:
        """Where the most is alive."""
        return max(range(len(self.live)), key=self.live.__getitem__, default=0)

    def around_peak(self) -> Window:
        """A window in which the peak can be looked at; None if all of the plan is no longer than that."""
        wide = max(len(self.live) // 12, 16)
        if wide >= len(self.live):
            return None
        first = min(max(self.peak_step - wide // 2, 0), len(self.live) - wide)
        return (first, first + wide)

    @cached_property
    def _made(self) -> dict[int, list[int]]:
        """The buffers that begin at each step."""
        made: dict[int, list[int]] = {}
        for index, row in enumerate(self.rows):
            made.setdefault(row["lower"], []).append(index)
        return made

    def steps(self, window: Window = None, search: str = "") -> list[dict[str, Any]]:
        """The nodes that run in a window, with what they make and what is alive then; those that match a search."""
        first, last = window or (0, len(self.live))
        wanted, found = search.lower(), []
        # The last step of which at least a half is in sight.
        for step in range(max(round(first), 0), min(round(last), len(self.live))):
            node = self.schedule[step] if step < len(self.schedule) else {}
            makes = self._made.get(step, [])
            label = node.get("label") or next((p for k in makes if (p := self.rows[k].get("producer"))), "")
            names = [self.rows[k]["name"] for k in makes]
            if wanted and not any(wanted in each.lower() for each in (label, *names)):
                continue
            found.append({
                "step": step, "node": label, "op": node.get("op_type", ""), "makes": ", ".join(names),
                "bytes": sum(self.rows[k]["bytes"] for k in makes), "live": self.live[step],
            })  # fmt: skip
        return found

    @property
    def top(self) -> int:
        """The end of the highest buffer: the peak of the plan."""
        return max((int(row["offset"]) + self._footprint(k) for k, row in enumerate(self.rows)), default=0)

    def _footprint(self, index: int) -> int:
        """The bytes of a buffer with those behind it that no other can take."""
        size, alignment = int(self.rows[index]["bytes"]), int(self.chart.document["alignment"])
        return -(-size // alignment) * alignment

    def found(self, search: str) -> int:
        """How many buffers have this in their names, or are made by a node that has."""
        return sum(search.lower() in f"{row['name']} {row.get('producer') or ''}".lower() for row in self.rows)

    def tensor_of(self, step: int, node: str) -> int | None:
        """The buffer to show for a node: the largest that it makes, or else that it reads."""
        made = self._made.get(step, [])
        read = [k for k, row in enumerate(self.rows) if node and node in (row.get("consumers") or ())]
        return max(made or read, key=lambda k: self.rows[k]["bytes"], default=None)
