"""How much memory does this model really take? It is loaded and run in fresh processes, and watched from outside."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxmem.environment import read_environment
from onnxmem.errors import UsageError
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.nodes import RuntimeMemory, read_memory, unknown_memory
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.measurement.trial import OnPhase, run_trial


def measure(
    model: Scenario | Path | str,
    *,
    repeat: int = 1,
    nodes: bool = True,
    on_phase: OnPhase | None = None,
    **settings: Any,
) -> Measurement:
    """Measure a model: `measure("model.onnx", shapes={"x": (1, 3, 640, 640)}, mode="tuned", repeat=3)`.

    `settings` are the fields of a Scenario. Each of `repeat` trials is a process of its own. With `nodes`, one more
    process runs with ONNX Runtime's profiler to tell which nodes take the memory; no other figure comes from it.
    `on_phase(name, pid)` is called at the beginning of each phase.

    That the model crashes, takes too long or more memory than it may is a result: look at `verdict`.
    """
    if isinstance(model, Scenario):
        scenario = replace(model, **settings)
    else:
        unknown = settings.keys() - Scenario.__dataclass_fields__.keys()
        if unknown:
            known = ", ".join(name for name in Scenario.__dataclass_fields__ if name != "model")
            raise UsageError(f"there is no setting '{min(unknown)}'", hint=f"known: {known}")
        scenario = Scenario(Path(model), **settings)
    if repeat < 1:
        raise UsageError(f"repeat must be at least 1; it is {repeat}")
    signature = read_signature(scenario.model)
    feeds = make_feeds(signature, scenario)
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as temporary:
        folder = Path(temporary)
        task = worker_task(scenario, feeds.save(folder))
        trials = []
        for _ in range(repeat):
            trials.append(
                run_trial(
                    task,
                    timeout=scenario.timeout,
                    memory_limit=scenario.memory_limit,
                    model_files=signature.files,
                    on_phase=on_phase,
                )
            )
            if not trials[-1].verdict.ok:
                break
        if not trials[-1].verdict.ok:
            runtime = unknown_memory("the model did not run to the end")
        elif nodes:
            runtime = _profile(task, scenario, signature.files, folder)
        else:
            runtime = unknown_memory("it was not asked for")
    environment = read_environment(trials[-1].onnxruntime)
    return Measurement(scenario, signature.file_size, feeds.described(), tuple(trials), runtime, environment)


def worker_task(scenario: Scenario, feeds: list[tuple[str, str]]) -> dict[str, Any]:
    """What the worker is told."""
    return {
        "model": str(scenario.model),
        "feeds": feeds,
        "mode": scenario.mode,
        "runs": scenario.runs,
        "threads": scenario.threads,
        "options": dict(scenario.options),
        "config": dict(scenario.config),
        "profile": False,
    }


def _profile(task: dict[str, Any], scenario: Scenario, files: tuple[Path, ...], folder: Path) -> RuntimeMemory:
    """Run twice more with ONNX Runtime's profiler and node statistics, without the memory pattern."""
    statistics = folder / "nodes.csv"
    profiling = {"enable_profiling": True, "profile_file_prefix": str(folder / "profile"), "enable_mem_pattern": False}
    task = {
        **task,
        # Only ONNX Runtime's own allocator keeps the figures that are asked for here.
        "mode": "tuned" if scenario.mode == "planned" else scenario.mode,
        "runs": 1,
        "profile": True,
        "options": {**task["options"], **profiling},
        "config": {**task["config"], "session.collect_node_memory_stats_to_file": str(statistics)},
    }
    trial = run_trial(task, timeout=scenario.timeout, memory_limit=None, model_files=files)
    if not trial.verdict.ok or trial.profile is None:
        return unknown_memory(f"the run with the profiler did not end well: {trial.verdict}")
    return read_memory(Path(trial.profile), statistics)
