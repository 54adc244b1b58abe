"""ONNX Runtime's profile and statistics, read as far as they go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onnxmem.measurement.nodes import read_memory
from onnxmem.unknown import Unknown


def event(name: str, ts: int, **args: int) -> dict[str, Any]:
    texts = {key: str(value) for key, value in args.items()}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": 5, "args": {"op_name": "Relu", **texts}}


def run(ts: int) -> dict[str, Any]:
    return {"cat": "Session", "name": "model_run", "ts": ts, "dur": 100, "args": {}}


def write(folder: Path, events: list[dict[str, Any]], statistics: str | None = None) -> tuple[Path, Path]:
    profile, table = folder / "profile.json", folder / "nodes.csv"
    profile.write_text(json.dumps(events))
    if statistics is not None:
        table.write_text(
            "#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations\n" + statistics
        )
    return profile, table


def test_the_last_run_counts_and_loops_are_one_node(tmp_path: Path) -> None:
    first = event("a", 1, node_index=0, mem_bytes_in_use=150, mem_in_use_delta=50, mem_arena_held=999)
    again = event("a", 11, node_index=0, mem_bytes_in_use=160, mem_in_use_delta=50, parameter_size=7)
    body = [event("b", 12 + k, node_index=1, mem_bytes_in_use=170 + k, output_size=3) for k in range(3)]
    body[-1]["args"] |= {"mem_arena_held": "1000", "mem_in_use_peak": "400"}
    memory = read_memory(*write(tmp_path, [run(0), first, run(10), again, *body], "a_123,0,0,50,20\n"))
    assert (memory.weights, memory.packed, memory.arena_held, memory.arena_peak) == (7, 100, 1000, 400)
    assert not isinstance(memory.nodes, Unknown)
    a, b = memory.nodes
    assert (a.name, a.times, a.dynamic, a.temporary, a.in_use) == ("a", 1, 50, 20, 60)
    assert (b.name, b.times, b.dynamic, b.in_use) == ("b", 3, 3, 72)
    assert isinstance(b.temporary, Unknown)
    assert memory.largest == (a, b)


def test_an_older_runtime_leaves_memory_unknown(tmp_path: Path) -> None:
    memory = read_memory(*write(tmp_path, [run(0), event("a", 1, output_size=64)]))
    assert isinstance(memory.packed, Unknown) and "1.28" in memory.packed.reason
    assert isinstance(memory.arena_held, Unknown)
    assert not isinstance(memory.nodes, Unknown) and memory.nodes[0].dynamic == 64


def test_two_nodes_of_one_name_share_no_statistics(tmp_path: Path) -> None:
    events = [run(0), event("a", 1, node_index=0, output_size=1), event("a", 2, node_index=1, output_size=2)]
    memory = read_memory(*write(tmp_path, events, "a_1,0,0,50,20\n"))
    assert not isinstance(memory.nodes, Unknown)
    assert [node.dynamic for node in memory.nodes] == [1, 2]


def test_a_profile_of_nothing_or_none_is_unknown(tmp_path: Path) -> None:
    assert isinstance(read_memory(*write(tmp_path, [])).nodes, Unknown)
    assert isinstance(read_memory(tmp_path / "none.json", tmp_path / "none.csv").weights, Unknown)
