"""What does a built model ask for when it runs, in which order do its nodes run, and where does it all fit?

Asked in a process of its own, with the very settings the model will be loaded with.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem.errors import ModelError
from onnxmem.process.child import last_words, read_task, run_child
from onnxmem.session.modes import Mode, Setting
from onnxmem.session.planned.trace import Trace

SavedFeeds = Sequence[tuple[str, str]]
"""Names of inputs, and files of arrays."""

_KERNEL = "_kernel_time"


@dataclass(frozen=True)
class LoadSettings:
    """What a session is told when it is made."""

    options: Mapping[str, Setting]
    config: Mapping[str, str]

    def under(self, mode: Mode) -> LoadSettings:
        """With what a mode says on top."""
        return LoadSettings({**self.options, **mode.options}, {**self.config, **mode.config})


@dataclass(frozen=True)
class Recording:
    """One run: what it asked for, and which nodes ran when."""

    trace: Trace
    ran: tuple[str, ...]
    """Names of nodes, those of subgraphs too, in the order in which they ran."""
    scratch: Mapping[str, int]
    """The bytes a node took besides its outputs, by its name; empty before ONNX Runtime 1.28, which cannot tell."""


def record_nodes(model: Path, settings: LoadSettings, feeds: SavedFeeds, *, timeout: float) -> Recording:
    """Record one run, and once more with the profiler on."""
    said = _ask({"what": "nodes"}, model, settings, feeds, timeout)
    return Recording(Trace.from_document(said["trace"]), tuple(said["ran"]), said["scratch"])


def record_plan(
    model: Path, settings: LoadSettings, feeds: SavedFeeds, *, seconds: float, timeout: float
) -> dict[str, Any]:
    """Record one run, and search for a plan of it for so long: a document for `plans` of a planned session."""
    return _ask({"what": "plan", "seconds": seconds}, model, settings, feeds, timeout)


def _ask(
    task: Mapping[str, Any], model: Path, settings: LoadSettings, feeds: SavedFeeds, timeout: float
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as folder:
        answer = Path(folder, "answer.json")
        loaded = {"options": dict(settings.options), "config": dict(settings.config)}
        files = {"model": str(model.absolute()), "feeds": list(feeds), "answer": str(answer)}
        code, said = run_child("onnxmem.packing.recording", {**task, **loaded, **files}, timeout=timeout)
        if code:
            raise ModelError(
                f"recording a run of '{model.name}' did not end well: {last_words(said)}",
                hint="give inputs it can run on: --shape, --dim or --inputs",
            )
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def _options(task: Mapping[str, Any]) -> Any:
    import onnxruntime  # noqa: PLC0415

    from onnxmem.session.options import apply  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    apply(options, task["options"], task["config"])
    return options


def _nodes(task: Mapping[str, Any], feeds: Mapping[str, Any], trace: Trace) -> dict[str, Any]:
    import onnxruntime  # noqa: PLC0415

    folder = Path(task["answer"]).parent
    options, stats = _options(task), folder / "stats.csv"
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    # The memory pattern is one allocation that no node makes.
    options.enable_mem_pattern = options.enable_mem_reuse = False
    options.add_session_config_entry("session.collect_node_memory_stats_to_file", str(stats))
    session = onnxruntime.InferenceSession(task["model"], options, providers=["CPUExecutionProvider"])
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())
    del session  # which writes the statistics
    kernels = [event for event in events if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)]
    ran = [event["name"].removesuffix(_KERNEL) for event in sorted(kernels, key=lambda event: event["ts"])]
    scratch: dict[str, int] = {}
    if stats.exists():
        with stats.open(newline="") as file:
            for row in csv.DictReader(file):
                name, taken = row["#name"], int(row["total_temp_allocations"])
                scratch[name] = max(scratch.get(name, 0), taken)
    return {"trace": trace.document(), "ran": ran, "scratch": scratch}


def _plan(task: Mapping[str, Any], feeds: Mapping[str, Any], trace: Trace) -> dict[str, Any]:
    from onnxmem.session.planned.plan_book import RunKey, solved  # noqa: PLC0415

    key = RunKey(tuple(sorted((name, array.shape) for name, array in feeds.items())), ())
    return solved(key, trace, seconds=task["seconds"])


def _answer(task: Mapping[str, Any]) -> None:
    """Do the task; runs in the child."""
    import numpy as np  # noqa: PLC0415

    from onnxmem.session.planned.trace import record  # noqa: PLC0415

    feeds = {name: np.load(path) for name, path in task["feeds"]}
    trace = record(task["model"], feeds, _options(task))
    found = {"nodes": _nodes, "plan": _plan}[task["what"]](task, feeds, trace)
    Path(task["answer"]).write_text(json.dumps(found))


if __name__ == "__main__":
    try:
        _answer(read_task())
    except Exception as error:  # whatever a model can raise is one line for the parent
        sys.exit(" ".join(str(error).split()) or repr(error))
