"""Which ways are there to load and run a model, what does each cost, and when is it the wrong one?

One table, which the code, the command line and the documentation share. Only names and settings, nothing is imported:
the measured process reads it before anything else is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING

from onnxmem.commands import path_word
from onnxmem.errors import RuntimeUnsupported, UsageError

if TYPE_CHECKING:
    from pathlib import Path

Setting = bool | int | float | str

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
# Every wheel for the CPU lists the second, which calls remote services: all memory is the CPU's.
CPU_PROVIDERS = (CPU, "AzureExecutionProvider")
DISABLE_PREPACKING = "session.disable_prepacking"
MAP_ORT = "session.use_memory_mapped_ort_model"
ORT_BYTES = "session.use_ort_model_bytes_directly"
ORT_INITIALIZERS = "session.use_ort_model_bytes_for_initializers"
SAVE_PREPACKED = "session.save_external_prepacked_constant_initializers"

FORMS = {
    "any": "any model file",
    "external": "an .onnx file with its weights in a file beside it",
    "prepacked": "the same, with packed weights saved too: a package",
    "ort": "an .ort file",
}
"""What a mode can read."""


@dataclass(frozen=True)
class Mode:
    """One way to load and run."""

    name: str
    about: str
    options: Mapping[str, Setting] = field(default_factory=dict)
    """Attributes of onnxruntime's SessionOptions; enumerations by the name of the value."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Its configuration entries."""
    form: str = "any"
    """What it reads: a key of FORMS."""
    since: tuple[int, int] = (1, 24)
    """The first ONNX Runtime that has it."""
    shared: bool = False
    """Whether processes share one copy of the weights."""
    exact: bool = True
    """Whether outputs are stock's, bit for bit. Unpacked kernels add in another order, so that last bits differ."""
    trim: bool = False
    """Whether loading leaves freed memory in the heap that is worth giving back."""
    costs: str = ""
    needs: str = ""
    avoid: str = ""
    """When not to use it."""


# The memory pattern takes one more block on top of the arena of the first run; same-size reuse stretches lifetimes.
# Without packing, the pattern would also reserve a block for all weights that nobody uses.
_TUNED: Mapping[str, Setting] = {"enable_mem_pattern": False, "enable_mem_reuse": False}

MODES = (
    Mode(
        "stock",
        "as ONNX Runtime comes: weights in the heap, then packed",
        since=(1, 0),
        costs="a private copy of the weights for each process, at times two; freed heap stays resident",
        needs="nothing",
        avoid="several processes run the same model, or memory is short",
    ),
    Mode(
        "tuned",
        "stock without memory pattern and same-size reuse, which cost more than they save; trimmed after loading",
        options=_TUNED,
        trim=True,
        costs="a private copy of the weights for each process; a few more calls of the allocator in each run",
        needs="nothing",
        avoid="the weights are most of the memory: share them instead",
    ),
    Mode(
        "planned",
        "every tensor at the place that was solved for it, in one arena; for packages, on top of their own mode",
        options=_TUNED,
        trim=True,
        costs="two to three MiB for the planner and its libraries in each process; "
        "the first shapes without a saved plan are recorded once",
        needs="Linux, and the CPU or a CUDA device; elsewhere it falls back to stock, or to the package's mode, "
        "and says why",
        avoid="runs take only a few MiB",
    ),
    Mode(
        "external",
        "weights beside the model, mapped; those that kernels pack are copied",
        options=_TUNED,
        form="external",
        trim=True,
        costs="a private copy of every packed weight (MatMul, Gemm, LSTM …); the others are shared",
        needs="external data",
        avoid="the weights are mostly packed: prepacked shares those too",
    ),
    Mode(
        "mapped",
        "weights beside the model, used from the map as they are, never packed",
        options=_TUNED,
        config={DISABLE_PREPACKING: "1"},
        form="external",
        shared=True,
        exact=False,
        trim=True,
        costs="slower matrix products (up to twice)",
        needs="external data",
        avoid="latency matters, or outputs must be equal bit for bit",
    ),
    Mode(
        "prepacked",
        "weights and packed weights beside the model, both mapped: one copy for all processes at full speed",
        options=_TUNED,
        form="prepacked",
        shared=True,
        trim=True,
        costs="twice the disk for packed weights; one weight at a time is packed and dropped again while loading",
        needs="a package made by this version of ONNX Runtime on this kind of CPU",
        avoid="the package must move between unlike machines: make it on each",
    ),
    Mode(
        "ort",
        "an .ort file, already optimized, read into memory",
        form="ort",
        costs="2.6 times the file while loading, one private copy afterwards",
        needs="an .ort file, below 2 GiB",
        avoid="memory is short: ort-mapped-packed loads the same file with half of it, ort-mapped with next to nothing",
    ),
    Mode(
        "ort-mapped",
        "an .ort file whose weights are used from the map, never packed",
        options=_TUNED,
        config={MAP_ORT: "1", ORT_INITIALIZERS: "1", DISABLE_PREPACKING: "1"},
        form="ort",
        since=(1, 26),
        shared=True,
        exact=False,
        costs="slower matrix products",
        needs="an .ort file, ONNX Runtime 1.26",
        avoid="latency matters, or outputs must be equal bit for bit: prepacked has both",
    ),
    Mode(
        "ort-mapped-packed",
        "an .ort file that is mapped; weights that kernels pack are copied",
        options=_TUNED,
        config={MAP_ORT: "1", ORT_INITIALIZERS: "1"},
        form="ort",
        since=(1, 26),
        costs="one private copy of every packed weight, and the map it was packed from stays resident (shared)",
        needs="an .ort file, ONNX Runtime 1.26",
        avoid="there are many processes: prepacked shares packed weights as well",
    ),
)


def find_mode(name: str) -> Mode:
    """The mode of that name."""
    for mode in MODES:
        if mode.name == name:
            return mode
    raise UsageError(f"there is no mode '{name}'", hint=f"known: {', '.join(mode.name for mode in MODES)}")


def check_mode(name: str, model: Path) -> Mode:
    """The mode of that name, if it can load this file."""
    mode = find_mode(name)
    if mode.form == "any" or model.is_dir():  # a package's manifest says what it is
        return mode
    if (mode.form == "ort") != (model.suffix == ".ort"):
        problem = "is none"
    elif mode.form != "ort" and model.is_file() and not _has_external_data(model):
        problem = "holds its weights itself"
    else:
        return mode
    raise UsageError(
        f"mode '{name}' needs {FORMS[mode.form]}, and '{model.name}' {problem}",
        hint=f"make one: onnxmem pack {quote(path_word(model))} --mode {name} -o FOLDER",
    )


def _has_external_data(model: Path) -> bool:
    """Whether an .onnx file says where weights beside it are; asked without loading what could parse it."""
    import mmap  # noqa: PLC0415

    if not model.stat().st_size:
        return False
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # The key of an entry of `external_data`, as protobuf writes it. Something else may look like it: then ONNX
        # Runtime says what is wrong, if anything is.
        return content.find(b"\x0a\x08location") >= 0


def check_version(mode: Mode, version: str) -> None:
    """An error if this ONNX Runtime is too old for the mode."""
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < mode.since:
        raise RuntimeUnsupported(
            f"mode '{mode.name}' needs ONNX Runtime {mode.since[0]}.{mode.since[1]}, and this is {version}",
            hint="choose another mode, or: pip install --upgrade onnxruntime",
        )


def refuse_unsafe(config: Mapping[str, str], *, from_bytes: bool) -> None:
    """An error, with the reason, for settings that crash, corrupt outputs, or undo each other."""
    on = {name for name, value in config.items() if value == "1"}
    for names, only_bytes, why in UNSAFE:
        if set(names) <= on and (from_bytes or not only_bytes):
            short = " and ".join(name.removeprefix("session.") for name in names)
            raise UsageError(f"{short}{' with a model in bytes' if only_bytes else ''}: {why}")


UNSAFE = (
    (
        (ORT_BYTES, ORT_INITIALIZERS),
        True,
        "the session keeps pointers into bytes that Python may free; it crashes, or computes wrong outputs in silence",
    ),
    ((MAP_ORT,), True, "there is no file to map; give the path of the .ort file"),
    ((SAVE_PREPACKED, DISABLE_PREPACKING), False, "nothing would be packed, so nothing could be saved"),
)
"""Settings that must not meet; whether only if the model comes as bytes; and why."""
