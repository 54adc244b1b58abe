"""How are the files of a package made? By ONNX Runtime itself, in a process of its own.

A session is made that saves what it has optimized and packed. Whatever happens to that process, a crash or a kill or
a full disk, is an error here and nothing more; and it never outlives the one that started it.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnxmem.errors import ModelError, RuntimeUnsupported, UsageError
from onnxmem.packing.blobs import align, drop_orphans
from onnxmem.process.child import last_words, read_task, run_child
from onnxmem.session import modes
from onnxmem.session.package import WEIGHTS

MODEL = "model"
# Smaller weights stay in the graph: a page each would take more than it saves.
SMALLEST = 1024
# The ORT format is one flatbuffer.
ORT_LIMIT = 2**31 - 2**24
OnSize = Callable[[int], None]
"""Told how many bytes there are so far."""


def build(source: Path, folder: Path, form: str, on_size: OnSize | None = None) -> Path:
    """Write `source` into `folder` in that form, and say which file to load."""
    target = folder / f"{MODEL}{'.ort' if form == 'ort' else '.onnx'}"
    if source.suffix == ".ort":
        if form != "ort":
            raise RuntimeUnsupported(
                f"'{source.name}' is in ORT format, from which ONNX Runtime cannot write {modes.FORMS[form]}",
                hint="give the .onnx file it was made from, or choose mode ort, ort-mapped or ort-mapped-packed",
            )
        _copy(source, target)
    else:
        task = {"source": str(source.absolute()), "target": str(target.absolute()), "form": form}
        _run(task, folder, source, on_size)
        # A model of small weights only has none outside, and no file for them.
        if form != "ort" and (folder / WEIGHTS).exists():
            align(target, folder / WEIGHTS)
    return target


def load_options(form: str) -> dict[str, modes.Setting]:
    """What a session that loads a built file must be told beside its mode.

    The graph is optimized already; doing it once more would copy weights into the heap. An .ort file says so itself.
    """
    return {} if form == "ort" else {"graph_optimization_level": "ORT_DISABLE_ALL"}


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise UsageError(f"cannot write '{target}': {error.strerror}") from error


def _run(task: dict[str, Any], folder: Path, source: Path, on_size: OnSize | None) -> None:
    code, said = run_child("onnxmem.packing.build", task, on_tick=(lambda: on_size(_size(folder))) if on_size else None)
    if code:
        raise _failure(code, said, source, folder)


def _size(folder: Path) -> int:
    total = 0
    for file in folder.iterdir():
        with suppress(OSError):
            total += file.stat().st_size
    return total


def _failure(code: int, said: str, source: Path, folder: Path) -> Exception:
    """What a process that did not succeed died of."""
    full = code == -signal.SIGXFSZ or "No space left" in said or "Failed to write" in said
    if full or shutil.disk_usage(folder).free < 2**20:
        return UsageError(
            f"there is no room for a package of '{source.name}' in '{folder.parent}'",
            hint="is the disk full, or the size of files limited (ulimit -f)?",
        )
    if code == -signal.SIGKILL:
        return ModelError(f"the process that packed '{source.name}' was killed", hint="was there enough memory?")
    how = f"signal {-code}: " if code < 0 else ""
    return ModelError(f"ONNX Runtime cannot pack '{source.name}': {how}{last_words(said)}")


def _save(task: dict[str, Any]) -> None:
    """Make the session that saves; runs in the child."""
    import onnxruntime  # noqa: PLC0415

    from onnxmem.session.options import apply  # noqa: PLC0415

    form = task["form"]
    config = {}
    if form == "ort":
        config["session.save_model_format"] = "ORT"
    else:
        config["session.optimized_model_external_initializers_file_name"] = WEIGHTS
        config["session.optimized_model_external_initializers_min_size_in_bytes"] = str(SMALLEST)
    # Packing is of no use to a session that never runs, unless what it packs is saved.
    config[modes.SAVE_PREPACKED if form == "prepacked" else modes.DISABLE_PREPACKING] = "1"
    options = onnxruntime.SessionOptions()
    settings: dict[str, modes.Setting] = {
        "optimized_model_filepath": task["target"],
        "log_severity_level": 3,
        "enable_cpu_mem_arena": False,
        "enable_mem_pattern": False,
    }
    apply(options, settings, config)
    try:
        made = onnxruntime.InferenceSession(
            task["source"], options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:  # onnxruntime raises a dozen classes of its own
        sys.exit(" ".join(str(error).split()))
    if form != "ort":
        drop_orphans(Path(task["target"]), {value.name for value in made.get_inputs()})


if __name__ == "__main__":
    _save(read_task())
