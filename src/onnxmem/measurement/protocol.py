"""What the parent and the measured process say to each other. Light: the measured process imports it before it begins.

    ← Order                                            the task, and under which limits
    → Begin("load")             ← (an empty line)      go on, when the parent has looked
    → End("load", 0.3)          ← (an empty line)      … or Failed, and then it is over
    → Ran(0.01) and other news                         no answer

Each is one line of JSON, so that whatever kills the process takes only the phase it was in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar, Self, dataclass_transform

START, IMPORT, INPUTS, LOAD = "start", "import", "inputs", "load"
FIRST_RUN, STEADY_RUNS = "first run", "steady runs"
RELEASE, TRIM, EXIT = "release", "trim", "exit"
PHASES = (START, IMPORT, INPUTS, LOAD, FIRST_RUN, STEADY_RUNS, RELEASE, TRIM, EXIT)
"""`release` drops all references; `trim` then asks glibc to give back what it keeps of the freed heap."""
RUNS = (FIRST_RUN, STEADY_RUNS)

SavedFeeds = Sequence[tuple[str, str]]
"""Names of inputs, and the files their arrays are in."""

# What failed allocations look like as text: from Python, C++, the loader, ONNX Runtime's arena, NumPy's BLAS, PyTorch.
NO_MEMORY = (
    "MemoryError",
    "bad_alloc",
    "annot allocate memory",
    "ailed to allocate memory",
    "Memory allocation still",
    "can't allocate memory",
)
OUT_OF_MEMORY, REFUSED, FAILED = "out of memory", "refused", "failed"


@dataclass_transform(frozen_default=True)
class Light(tuple[Any, ...]):
    """A frozen record like a NamedTuple, without the functions that Python would compile for each: they are memory."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _field_defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(cls.__annotations__)
        cls.__match_args__ = cls._fields  # type: ignore[attr-defined,misc]
        cls._field_defaults = {name: vars(cls)[name] for name in cls._fields if name in vars(cls)}
        for place, name in enumerate(cls._fields):
            setattr(cls, name, property(itemgetter(place)))

    def __new__(cls, *values: Any, **named: Any) -> Self:
        fields = {**cls._field_defaults, **dict(zip(cls._fields, values, strict=False)), **named}
        return super().__new__(cls, [fields[name] for name in cls._fields])

    def _replace(self, **named: Any) -> Self:
        return type(self)(**{**dict(zip(self._fields, self, strict=True)), **named})


class Task(Light):
    """What the process is to load and run."""

    model: str
    feeds: SavedFeeds
    mode: str = "stock"
    runs: int = 1
    """Steady runs, after the first."""
    rounds: int = 1
    """How often these are done, each time as a phase of its own."""
    threads: int | None = None
    options: Mapping[str, Any] = {}
    config: Mapping[str, str] = {}
    profile: bool = False
    save: str | None = None
    """A folder for the outputs of the last run."""
    source: Mapping[str, Any] | None = None
    """The document of a `TorchSource`, for PyTorch's worker."""


class Order(Light):
    """A task, and the circumstances of this one process."""

    task: Task
    rlimits: Mapping[str, int]
    spawned: float
    """When the parent started it: `time.monotonic()`, which both share."""


class Begin(Light):
    """A phase is about to begin."""

    phase: str


class End(Light):
    """It is over, and went well."""

    phase: str
    seconds: float


class Failed(Light):
    """It is over, and so is the work."""

    phase: str
    seconds: float
    kind: str
    """OUT_OF_MEMORY, REFUSED (an error of onnxmem's, which has a hint) or FAILED."""
    error: str
    message: str
    hint: str


class Ran(Light):
    """One run of the model."""

    seconds: float


class Started(Light):
    """What the interpreter alone took, before anything of onnxmem's was imported."""

    rss: int | None


class Imported(Light):
    """Which framework it is."""

    framework: str
    version: str


class Outputs(Light):
    """Hashes of the outputs of the first run and of the last, and shapes by name."""

    sha256: Sequence[str]
    shapes: Mapping[str, Sequence[int]]


class Saved(Light):
    """Names of outputs, and the files they are in; none for what is no plain array."""

    outputs: Sequence[tuple[str, str | None]]


class Profiled(Light):
    """Where ONNX Runtime's profile is."""

    path: str


class Planned(Light):
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


class Released(Light):
    """What the steps of releasing a model met with."""

    clear_cache: bool
    """Whether sessions have a method of that name."""
    shrinkage: str | None
    """Why the arena could not be shrunk."""
    held_by: Sequence[str]
    """Who still held the session when it was closed."""
    trim: bool | str
    """Whether the allocator gave something back, or why it could not be asked."""


Message = Begin | End | Failed | Ran | Started | Imported | Outputs | Saved | Profiled | Planned | Released
_MESSAGES = {kind.__name__: kind for kind in Message.__args__}


def encode(message: Message) -> bytes:
    """A message as a line."""
    return json.dumps((type(message).__name__, *message)).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message that `encode` wrote."""
    name, *values = json.loads(line)
    message: Message = _MESSAGES[name](*map(_frozen, values))
    return message


def encode_order(order: Order) -> bytes:
    """An order as a line, without its end."""
    return json.dumps(order).encode()


def decode_order(line: bytes) -> Order:
    """The order that `encode_order` wrote."""
    task, rlimits, spawned = json.loads(line)
    return Order(Task(*task), rlimits, spawned)


def _frozen(value: Any) -> Any:
    """JSON has only lists: in records they are tuples."""
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
