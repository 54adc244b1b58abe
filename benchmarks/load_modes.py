"""Seven ways to load the same 448 MiB of weights, and what each of them takes: `python -m benchmarks.load_modes`.

RSS in MiB, each row the median of fresh processes. "loaded" is after the session was created, "peak" the most while it
was, "del" after the last reference is gone, "trim" after malloc_trim(0). Behind ± is half of the range of "loaded":
weights that go through the heap leave holes there, and how many differs from process to process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from onnxmem import zoo
from onnxmem.measurement.measure import measure
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.trial import Phase
from onnxmem.unknown import Bytes

_MAPPED = {"session.use_memory_mapped_ort_model": "1", "session.use_ort_model_bytes_for_initializers": "1"}
_UNPACKED = {"session.disable_prepacking": "1"}
_NO_PATTERN = {"enable_mem_pattern": False}
"""Without packing, the memory pattern would reserve one more block for all weights and never touch it."""


@dataclass(frozen=True)
class LoadMode:
    """A file and the session options it is loaded with."""

    name: str
    file: str
    config: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, bool] = field(default_factory=dict)

    @property
    def packs(self) -> bool:
        """Whether kernels see packed weights; those that do not round differently in the last bit."""
        return "session.disable_prepacking" not in self.config


LOAD_MODES = (
    LoadMode("inline", "inline.onnx"),
    LoadMode("external", "external.onnx"),
    LoadMode("external, no prepacking", "external.onnx", _UNPACKED, _NO_PATTERN),
    LoadMode("external, saved packed", "packed.onnx"),
    LoadMode(".ort", "model.ort"),
    LoadMode(".ort mapped", "model.ort", _MAPPED),
    LoadMode(".ort mapped, no prepacking", "model.ort", {**_MAPPED, **_UNPACKED}, _NO_PATTERN),
)


@contextmanager
def model_files(layers: int = 28, width: int = 2048) -> Iterator[Path]:
    """A folder with the same model in every form."""
    with tempfile.TemporaryDirectory(prefix="onnxmem-modes-") as temporary:
        folder = Path(temporary)
        proto = zoo.build("matmul", layers=layers, width=width)
        onnx.save_model(proto, folder / "inline.onnx")
        onnx.save_model(
            proto, folder / "external.onnx", save_as_external_data=True, location="external.bin", size_threshold=1024
        )
        del proto
        _optimize(
            folder / "external.onnx",
            folder / "packed.onnx",
            {
                "session.save_external_prepacked_constant_initializers": "1",
                "session.optimized_model_external_initializers_file_name": "packed.bin",
                "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
            },
        )
        _optimize(folder / "inline.onnx", folder / "model.ort", {"session.save_model_format": "ORT"})
        yield folder


def _optimize(source: Path, target: Path, config: Mapping[str, str]) -> None:
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 3
    for name, value in config.items():
        options.add_session_config_entry(name, value)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def measure_mode(mode: LoadMode, folder: Path, *, batch: int = 64, runs: int = 3, repeat: int = 1) -> Measurement:
    """All that is known about one row."""
    how: dict[str, Any] = {"config": mode.config, "options": mode.options, "runs": runs, "repeat": repeat}
    return measure(folder / mode.file, dims={"batch": batch}, **how, nodes=False)


def row(measurement: Measurement) -> dict[str, Any]:
    """The figures of a row, in bytes and seconds: medians over the repetitions, each figure for itself."""
    trials = measurement.trials

    def middle(name: str, figure: Callable[[Phase], Bytes]) -> int:
        values = [figure(phase) for trial in trials if (phase := trial.phase(name))]
        return int(statistics.median(value for value in values if isinstance(value, int)))

    low, high = measurement.spread("load", "rss") or (0, 0)
    return {
        "before": middle("inputs", lambda phase: phase.reading.rss),
        "loaded": middle("load", lambda phase: phase.reading.rss),
        "±": (high - low) // 2,
        "anonymous": middle("load", lambda phase: phase.reading.anon),
        "peak": middle("load", lambda phase: phase.peak.rss),
        "running": middle("steady runs", lambda phase: phase.reading.rss),
        "file": middle("steady runs", lambda phase: phase.reading.file),
        "del": middle("release", lambda phase: phase.reading.rss),
        "trim": middle("trim", lambda phase: phase.reading.rss),
        # Without the pages of libraries, of which more or fewer come with each fault, as the system has them at hand.
        "anonymous_kept": middle("trim", lambda phase: phase.reading.anon)
        - middle("inputs", lambda phase: phase.reading.anon),
        "file_freed": middle("steady runs", lambda phase: phase.reading.file)
        - middle("trim", lambda phase: phase.reading.file),
        "load_seconds": statistics.median(phase.seconds for trial in trials if (phase := trial.phase("load"))),
        "latency_seconds": measurement.latency,
        "outputs_sha256": str(measurement.outputs_sha256),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if two ways to load the model that should compute the same did not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load_modes", description=main.__doc__)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    columns = ("before", "loaded", "±", "anonymous", "peak", "running", "file", "del", "trim")
    rows: dict[str, dict[str, Any]] = {}
    with model_files(asked.layers, asked.width) as folder:
        if not asked.json:
            print(f"{'RSS in MiB':<27}" + "".join(f"{name:>{_wide(name)}}" for name in columns) + "      run")
        for mode in LOAD_MODES:
            print(f"{mode.name} …", file=sys.stderr)
            figures = rows[mode.name] = row(measure_mode(mode, folder, batch=asked.batch, repeat=asked.repeat))
            if not asked.json:
                sizes = (f"{figures[name] / 2**20:>{_wide(name)}.0f}" for name in columns)
                print(f"{mode.name:<27}{''.join(sizes)}{figures['latency_seconds'] * 1000:>6.0f} ms", flush=True)
    if asked.json:
        print(json.dumps(rows, indent=2))
    found = {packs: {rows[m.name]["outputs_sha256"] for m in LOAD_MODES if m.packs is packs} for packs in (True, False)}
    same = all(len(outputs) == 1 for outputs in found.values())
    words = "bit for bit the same with packed weights, and the same without" if same else "NOT the same"
    print(f"outputs: {words}", file=sys.stderr)
    return 0 if same else 1


def _wide(name: str) -> int:
    return max(len(name) + 2, 5 if name == "±" else 8)


if __name__ == "__main__":
    sys.exit(main())
