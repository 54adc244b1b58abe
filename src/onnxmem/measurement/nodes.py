"""Which nodes take the memory? From ONNX Runtime's own profile and node statistics of a run made for the purpose."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from onnxmem.documents import Record, stored
from onnxmem.unknown import Bytes, Unknown, known, subtract

_KERNEL = "_kernel_time"
_TOO_OLD = "ONNX Runtime reports memory in profiles since 1.28"
SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class NodeMemory(Record):
    """What one node takes in one run of the model; of a node that ran several times, the most."""

    name: str
    op: str
    times: int
    """How often it ran: more than once in the body of a loop."""
    dynamic: Bytes = stored("dynamic_bytes")
    """Outputs it allocates."""
    temporary: Bytes = stored("temporary_bytes")
    """Scratch it allocates and frees again while it runs."""
    in_use: Bytes = stored("in_use_bytes")
    """Allocated when it ends, by all nodes together, without packed weights."""
    seconds: float

    @property
    def taken(self) -> int:
        """Dynamic and temporary bytes, as far as they are known."""
        return sum(known([self.dynamic, self.temporary]))


@dataclass(frozen=True, kw_only=True)
class RuntimeMemory(Record):
    """ONNX Runtime's own figures, and the nodes behind them. The memory pattern was off, which both need."""

    weights: Bytes = stored("weights_bytes")
    """Weights that kernels read as they are: those that were not packed. One that two nodes read counts twice."""
    packed: Bytes = stored("packed_bytes")
    """In the arena before the first node runs: packed weights and small constants."""
    arena_held: Bytes = stored("arena_held_bytes")
    """What the arena has taken from the system after all runs."""
    arena_peak: Bytes = stored("arena_peak_bytes")
    """The most of it that was in use at once since the session began, packed weights included."""
    nodes: tuple[NodeMemory, ...] | Unknown

    @property
    def largest(self) -> tuple[NodeMemory, ...]:
        """The ten nodes that allocate most."""
        if isinstance(self.nodes, Unknown):
            return ()
        return tuple(sorted(self.nodes, key=lambda node: (-node.taken, node.name))[:SHOWN])

    def derived(self) -> Mapping[str, Any]:
        """The names of the largest nodes."""
        return {"blamed": [node.name for node in self.largest]}


class Kernel(NamedTuple):
    """One time that a node ran."""

    name: str
    op: str
    node: str
    """Which node it is, as a number: nodes may share a name."""
    began: int
    seconds: float
    figures: Mapping[str, Any]

    def number(self, key: str) -> int | None:
        """A figure of the profile; None where this ONNX Runtime does not have it."""
        try:
            return int(self.figures[key])
        except (KeyError, ValueError, TypeError):
            return None


class NodeStatistics(NamedTuple):
    """What ONNX Runtime allocated for a node beside what was planned, in bytes."""

    dynamic: int
    temporary: int


def unknown_memory(reason: str) -> RuntimeMemory:
    """No figures, and why."""
    why = Unknown(reason)
    return RuntimeMemory(weights=why, packed=why, arena_held=why, arena_peak=why, nodes=why)


def read_kernels(profile: Path) -> tuple[list[Kernel], int | None]:
    """All kernels in a profile, in the order in which they ran, and when the last run began. Bad files raise."""
    events = json.loads(profile.read_bytes())
    kernels = [
        Kernel(
            event["name"].removesuffix(_KERNEL),
            str(event["args"].get("op_name", "")),
            str(event["args"].get("node_index", "")),
            event["ts"],
            event["dur"] / 1e6,
            event["args"],
        )
        for event in events
        if event.get("cat") == "Node" and str(event.get("name", "")).endswith(_KERNEL)
    ]
    runs = [event["ts"] for event in events if event.get("name") == "model_run"]
    return sorted(kernels, key=lambda kernel: kernel.began), max(runs, default=None)


def read_statistics(path: Path) -> dict[str, NodeStatistics]:
    """What each node allocated, by its name; nothing before ONNX Runtime 1.28, which cannot tell.

    ONNX Runtime appends a hash to each name, which nothing else knows. Names that repeat are left out.
    """
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
        named = [(row["#name"].rpartition("_")[0], row) for row in rows]
        times = Counter(name for name, _ in named)
        return {
            name: NodeStatistics(int(row["total_dynamic_sizes"]), int(row["total_temp_allocations"]))
            for name, row in named
            if times[name] == 1
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def read_memory(profile: Path, statistics: Path) -> RuntimeMemory:
    """The figures of the last run in a profile."""
    try:
        kernels, last = read_kernels(profile)
    except (OSError, ValueError) as error:
        return unknown_memory(f"the profile cannot be read: {error}")
    if not kernels or last is None:
        return unknown_memory("the profile holds no nodes")
    final = [kernel for kernel in kernels if kernel.began >= last]
    # What was in use before the first node of all ran.
    before = subtract(_known(kernels[0].number("mem_bytes_in_use")), _known(kernels[0].number("mem_in_use_delta")))
    extra = read_statistics(statistics)
    # In the body of a loop the same node runs many times.
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in final:
        groups.setdefault((kernel.name, kernel.node), []).append(kernel)
    names = Counter(name for name, _ in groups)
    return RuntimeMemory(
        weights=sum(_largest(group, "parameter_size") or 0 for group in groups.values()),
        packed=before,
        arena_held=_known(final[-1].number("mem_arena_held")),
        arena_peak=_known(final[-1].number("mem_in_use_peak")),
        nodes=tuple(
            _node(group, extra.get(name) if names[name] == 1 else None, before) for (name, _), group in groups.items()
        ),
    )


def _node(kernels: Sequence[Kernel], extra: NodeStatistics | None, before: Bytes) -> NodeMemory:
    return NodeMemory(
        name=kernels[0].name,
        op=kernels[0].op,
        times=len(kernels),
        # Without statistics the size of its outputs is the next best; an alias or a reused buffer counts there too.
        dynamic=extra.dynamic if extra else _known(_largest(kernels, "output_size")),
        temporary=extra.temporary if extra else Unknown("ONNX Runtime's node statistics do not name it once"),
        in_use=subtract(_known(_largest(kernels, "mem_bytes_in_use")), before),
        seconds=sum(kernel.seconds for kernel in kernels),
    )


def _largest(kernels: Sequence[Kernel], key: str) -> int | None:
    return max((number for kernel in kernels if (number := kernel.number(key)) is not None), default=None)


def _known(value: int | None) -> Bytes:
    return Unknown(_TOO_OLD) if value is None else value
