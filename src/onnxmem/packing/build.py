"""How are the files of a package made? By ONNX Runtime itself, in a process of its own.

A session is made that saves what it has optimized and packed. Whatever happens to that process, a crash or a kill or
a full disk, is an error here and nothing more; and it never outlives the one that started it.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from onnxmem.documents import Record
from onnxmem.errors import ModelError, RuntimeUnsupported, UsageError
from onnxmem.model.load import all_tensors
from onnxmem.packing.blobs import SMALLEST, align, drop_orphans, drop_packed
from onnxmem.process.child import Ended, run_child, serve
from onnxmem.session import modes
from onnxmem.session.package import WEIGHTS

MODEL = "model"
# The ORT format is one flatbuffer.
ORT_LIMIT = 2**31 - 2**24
_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
# Basic optimizations that known shapes may set off, and that compute in another way: MatMul with Add becomes a Gemm,
# whose sums begin with what is added. Those that need no shapes have been done already.
_FUSIONS = (
    "MatMulAddFusion", "MatMul_BatchNormalization_Fusion", "GemmSumFusion", "GemmTransposeFusion", "ConvAddFusion",
    "ConvMulFusion", "ConvBNFusion", "Pad_Fusion", "DivMulFusion", "FuseReluClip", "GeluFusionL1", "LayerNormFusionL1",
)  # fmt: skip
OnSize = Callable[[int], None]
"""Called with the number of bytes so far."""


@dataclass(frozen=True)
class BuildTask(Record):
    """A model to be written in another form."""

    source: Path
    target: Path
    form: str
    shapes: Mapping[str, tuple[int, ...]]
    """Of inputs, to be written as if they were in the model."""


def build(
    source: Path,
    folder: Path,
    form: str,
    on_size: OnSize | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """Write `source` into `folder` in that form, and say which file to load.

    With `shapes` it is made for inputs of these shapes and for no others: what depends on them alone is computed now.
    `source` has been optimized before, then: optimizing it for these shapes from the beginning may choose kernels that
    give other bits.
    """
    target = folder / f"{MODEL}{'.ort' if form == 'ort' else '.onnx'}"
    if source.suffix == ".ort":
        if form != "ort":
            raise RuntimeUnsupported(
                f"'{source.name}' is in ORT format, from which ONNX Runtime cannot write {modes.FORMS[form]}",
                hint="give the .onnx file it was made from, or choose mode ort, ort-mapped or ort-mapped-packed",
            )
        _copy(source, target)
    else:
        tick = (lambda: on_size(_size(folder))) if on_size else None
        task = BuildTask(source.absolute(), target.absolute(), form, shapes or {})
        ended = run_child("onnxmem.packing.build", task, on_tick=tick)
        if ended.code:
            raise _failure(ended, source, folder)
        # A model of small weights only has none outside, and no file for them.
        if form != "ort" and (folder / WEIGHTS).exists():
            align(target, folder / WEIGHTS)
    return target


def load_options(form: str) -> dict[str, modes.Setting]:
    """The options that a session needs for a built file, beside its mode's.

    The graph is optimized already; doing it once more would copy weights into the heap. An .ort file says so itself.
    """
    return {} if form == "ort" else {"graph_optimization_level": "ORT_DISABLE_ALL"}


def _copy(source: Path, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise UsageError(f"cannot write '{target}': {error.strerror}") from error


def _size(folder: Path) -> int:
    total = 0
    for file in folder.iterdir():
        with suppress(OSError):
            total += file.stat().st_size
    return total


def _failure(ended: Ended, source: Path, folder: Path) -> Exception:
    """What a process that did not succeed died of."""
    code, output = ended.code, ended.output
    full = code == -signal.SIGXFSZ or "No space left" in output or "Failed to write" in output
    if full or shutil.disk_usage(folder).free < 2**20:
        return UsageError(
            f"there is no room for a package of '{source.name}' in '{folder.parent}'",
            hint="is the disk full, or the size of files limited (ulimit -f)?",
        )
    if code == -signal.SIGKILL:
        return ModelError(f"the process that packed '{source.name}' was killed", hint="was there enough memory?")
    how = f"signal {-code}: " if code < 0 else ""
    return ModelError(f"ONNX Runtime cannot pack '{source.name}': {how}{ended.last_line}")


def _save(task: BuildTask) -> None:
    """Make the session that saves; runs in the child."""
    import onnxruntime  # noqa: PLC0415

    from onnxmem.session.options import apply  # noqa: PLC0415

    config = {}
    if task.form == "ort":
        config["session.save_model_format"] = "ORT"
    else:
        config["session.optimized_model_external_initializers_file_name"] = WEIGHTS
        config["session.optimized_model_external_initializers_min_size_in_bytes"] = str(SMALLEST)
    # Packing is of no use to a session that never runs, unless what it packs is saved.
    config[modes.SAVE_PREPACKED if task.form == "prepacked" else modes.DISABLE_PREPACKING] = "1"
    options = onnxruntime.SessionOptions()
    settings: dict[str, modes.Setting] = {
        "optimized_model_filepath": str(task.target),
        "log_severity_level": 3,
        "enable_cpu_mem_arena": False,
        "enable_mem_pattern": False,
    }
    apply(options, settings, config)
    source: str | bytes = str(task.source)
    disabled: list[str] = []
    if task.shapes:
        disabled.extend(_FUSIONS)
        source = _fixed(task.source, task.shapes)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # Bytes lie in no folder, so that it has to be told where weights are that lie beside the model.
        options.add_session_config_entry(_EXTERNAL_FOLDER, str(task.source.parent))
    session = onnxruntime.InferenceSession(
        source, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled, enable_fallback=0
    )
    if task.form != "ort":
        drop_orphans(task.target, {value.name for value in session.get_inputs()})


def _fixed(model: Path, shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """The model with these shapes in it."""
    import onnx  # noqa: PLC0415

    proto = onnx.load_model(model, load_external_data=False)
    for tensor in all_tensors(proto):
        drop_packed(tensor)  # or else ONNX Runtime would not write down what it packs now
    for value in proto.graph.input:
        for dim, number in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = number
    # What was inferred for any size is not more than what will be for this one, and may contradict it.
    del proto.graph.value_info[:]
    content: bytes = proto.SerializeToString()
    return content


def main() -> None:
    """Do one task for the parent."""
    serve(BuildTask, _save)
