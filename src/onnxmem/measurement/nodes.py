"""Which nodes take the memory? From ONNX Runtime's own profile and node statistics of a run made for the purpose."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem.unknown import Bytes, Unknown

_KERNEL = "_kernel_time"
_TOO_OLD = "ONNX Runtime reports memory in profiles since 1.28"
SHOWN = 10


@dataclass(frozen=True)
class NodeMemory:
    """What one node takes in one run of the model; of a node that ran several times, the most."""

    name: str
    op: str
    times: int
    """How often it ran: more than once in the body of a loop."""
    dynamic: Bytes
    """Outputs it allocates."""
    temporary: Bytes
    """Scratch it allocates and frees again while it runs."""
    in_use: Bytes
    """Allocated when it ends, by all nodes together, without packed weights."""
    seconds: float

    @property
    def taken(self) -> int:
        """Dynamic and temporary bytes, as far as they are known."""
        return sum(size for size in (self.dynamic, self.temporary) if isinstance(size, int))


@dataclass(frozen=True)
class RuntimeMemory:
    """ONNX Runtime's own figures, and the nodes behind them. The memory pattern was off, which both need."""

    weights: Bytes
    """Weights that kernels read as they are: those that were not packed. One that two nodes read counts twice."""
    packed: Bytes
    """In the arena before the first node runs: packed weights and small constants."""
    arena_held: Bytes
    """What the arena has taken from the system after all runs."""
    arena_peak: Bytes
    """The most of it that was in use at once since the session began, packed weights included."""
    nodes: tuple[NodeMemory, ...] | Unknown

    @property
    def blamed(self) -> tuple[NodeMemory, ...]:
        """The ten nodes that allocate most."""
        if isinstance(self.nodes, Unknown):
            return ()
        return tuple(sorted(self.nodes, key=lambda node: (-node.taken, node.name))[:SHOWN])


def unknown_memory(reason: str) -> RuntimeMemory:
    """No figures, and why."""
    why = Unknown(reason)
    return RuntimeMemory(why, why, why, why, why)


def read_memory(profile: Path, statistics: Path) -> RuntimeMemory:
    """The figures of the last run in a profile."""
    try:
        events = json.loads(profile.read_bytes())
    except (OSError, ValueError) as error:
        return unknown_memory(f"the profile cannot be read: {error}")
    kernels = [e for e in events if e.get("cat") == "Node" and str(e.get("name", "")).endswith(_KERNEL)]
    runs = [event for event in events if event.get("name") == "model_run"]
    if not kernels or not runs:
        return unknown_memory("the profile holds no nodes")
    kernels.sort(key=lambda event: event["ts"])
    last = max(run["ts"] for run in runs)
    final = [event for event in kernels if event["ts"] >= last]
    before = _before(kernels[0])
    extra = _statistics(statistics)
    # In the body of a loop the same node runs many times.
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for event in final:
        groups.setdefault((_name(event), str(event["args"].get("node_index", ""))), []).append(event)
    names = Counter(name for name, _ in groups)
    nodes = tuple(_node(group, extra if names[name] == 1 else {}, before) for (name, _), group in groups.items())
    return RuntimeMemory(
        weights=sum(_largest(group, "parameter_size") or 0 for group in groups.values()),
        packed=before,
        arena_held=_known(_number(final[-1], "mem_arena_held")),
        arena_peak=_known(_number(final[-1], "mem_in_use_peak")),
        nodes=nodes,
    )


def _node(events: Sequence[Mapping[str, Any]], extra: Mapping[str, tuple[int, int]], before: Bytes) -> NodeMemory:
    name = _name(events[0])
    dynamic, temporary = extra.get(name, (None, None))
    in_use = _largest(events, "mem_bytes_in_use")
    return NodeMemory(
        name,
        str(events[0]["args"].get("op_name", "")),
        len(events),
        # Without statistics the size of its outputs is the next best; an alias or a reused buffer counts there too.
        _known(dynamic if dynamic is not None else _largest(events, "output_size")),
        Unknown("ONNX Runtime's node statistics do not name it once") if temporary is None else temporary,
        in_use - before if in_use is not None and isinstance(before, int) else Unknown(_TOO_OLD),
        sum(event["dur"] for event in events) / 1e6,
    )


def _before(first: Mapping[str, Any]) -> Bytes:
    """What was in use before the first node of all ran."""
    in_use, added = _number(first, "mem_bytes_in_use"), _number(first, "mem_in_use_delta")
    return Unknown(_TOO_OLD) if in_use is None or added is None else in_use - added


def _statistics(path: Path) -> dict[str, tuple[int, int]]:
    """Dynamic and temporary bytes by node. ONNX Runtime appends a hash to each name; names that repeat are left out."""
    try:
        rows = list(csv.DictReader(path.read_text().splitlines()))
        named = [(row["#name"].rpartition("_")[0], row) for row in rows]
        once = Counter(name for name, _ in named)
        return {
            name: (int(row["total_dynamic_sizes"]), int(row["total_temp_allocations"]))
            for name, row in named
            if once[name] == 1
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _name(event: Mapping[str, Any]) -> str:
    return str(event["name"]).removesuffix(_KERNEL)


def _number(event: Mapping[str, Any], key: str) -> int | None:
    try:
        return int(event["args"][key])
    except (KeyError, ValueError, TypeError):
        return None


def _largest(events: Sequence[Mapping[str, Any]], key: str) -> int | None:
    return max((number for event in events if (number := _number(event, key)) is not None), default=None)


def _known(value: int | None) -> Bytes:
    return Unknown(_TOO_OLD) if value is None else value
