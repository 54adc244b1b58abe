"""What the parent and the measured process say to each other. Light: the measured process imports it before it begins.

    ← Task                                             what to do, and under which limits
    → Begin("load")             ← (an empty line)      go on, when the parent has looked
    → End("load", 0.3)          ← (an empty line)      … or Failed, and then it is over
    → Ran(0.01) and other news                         no answer

Each is one line of JSON, so that whatever kills the process takes only the phase it was in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxmem.process import messages

START, IMPORT, INPUTS, LOAD = "start", "import", "inputs", "load"
FIRST_RUN, STEADY_RUNS = "first run", "steady runs"
RELEASE, TRIM, EXIT = "release", "trim", "exit"
PHASES = (START, IMPORT, INPUTS, LOAD, FIRST_RUN, STEADY_RUNS, RELEASE, TRIM, EXIT)
"""`release` drops all references; `trim` then asks glibc to give back what it keeps of the freed heap."""
RUNS = (FIRST_RUN, STEADY_RUNS)

SavedFeeds = Sequence[tuple[str, str]]
"""Names of inputs, and the files their arrays are in."""

# What failed allocations look like as text: from Python, C++, the loader, ONNX Runtime's arena, NumPy's BLAS, PyTorch,
# and on a GPU.
NO_MEMORY = (
    "MemoryError",
    "bad_alloc",
    "annot allocate memory",
    "ailed to allocate memory",
    "Memory allocation still",
    "can't allocate memory",
    "CUDA out of memory",
    "CUDA failure 2",
)
OUT_OF_MEMORY, REFUSED, FAILED = "out of memory", "refused", "failed"


class Task(messages.Message):
    """What the process is to load and run."""

    model: str
    feeds: SavedFeeds
    mode: str = "stock"
    runs: int = 1
    """Steady runs, after the first."""
    rounds: int = 1
    """How often these are done, each time as a phase of its own."""
    threads: int | None = None
    device: int | None = None
    """The number of a CUDA device; None: the CPU."""
    options: Mapping[str, Any] = {}
    config: Mapping[str, str] = {}
    profile: bool = False
    save: str | None = None
    """A folder for the outputs of the last run."""
    source: Mapping[str, Any] | None = None
    """The document of a `TorchSource`, for PyTorch's worker."""
    rlimits: Mapping[str, int] = {}
    """Limits of this one process."""
    spawned: float = 0.0
    """When the parent started it: `time.monotonic()`, which both share."""


class Begin(messages.Message):
    """A phase is about to begin."""

    phase: str


class End(messages.Message):
    """It is over, and went well."""

    phase: str
    seconds: float


class Failed(messages.Message):
    """It is over, and so is the work."""

    phase: str
    seconds: float
    kind: str
    """OUT_OF_MEMORY, REFUSED (an error of onnxmem's, which has a hint) or FAILED."""
    error: str
    message: str
    hint: str


class Ran(messages.Message):
    """One run of the model."""

    seconds: float


class Started(messages.Message):
    """What the interpreter alone took, before anything of onnxmem's was imported."""

    rss: int | None


# The next four are fields of a `Trial`.


class Imported(messages.Message):
    """Which framework it is."""

    framework: str
    framework_version: str


class Outputs(messages.Message):
    """Hashes of the outputs of the first run and of the last; of the last also shapes by name, and the size."""

    outputs: Sequence[str]
    output_shapes: Mapping[str, Sequence[int]]
    output_bytes: int | None
    """All together; None if one of them does not tell, as strings and maps do not."""


class Saved(messages.Message):
    """Names of outputs, and the files they are in; none for what is no plain array."""

    saved: Sequence[tuple[str, str | None]]


class Profiled(messages.Message):
    """Where ONNX Runtime's profile is."""

    profile: str


class Planned(messages.Message):
    """What the plan of a session took, and how runs were served; or why there was none."""

    loaded_mode: str
    reason: str | None
    arena_bytes: int | None
    plan_bytes: int | None
    lower_bound_bytes: int | None
    runs_recorded: int
    runs_replayed: int
    runs_deviated: int
    runs_from_heap: int
    notes: Sequence[str] = ()


class Released(messages.Message):
    """What the steps of releasing a model met with."""

    clear_cache: bool
    """Whether sessions have a method of that name."""
    shrinkage: str | None
    """Why the arena could not be shrunk."""
    held_by: Sequence[str]
    """Who still held the session when it was closed."""
    trim: bool | str
    """Whether the allocator gave something back, or why it could not be asked."""


Message = Task | Begin | End | Failed | Ran | Started | Imported | Outputs | Saved | Profiled | Planned | Released
_MESSAGES = {kind.__name__: kind for kind in Message.__args__}


encode = messages.encode


def decode(line: bytes) -> Any:
    """The message that `encode` wrote, as a line."""
    message: Message = messages.decode(line, _MESSAGES)
    return type(message)(*map(messages.frozen, message))
