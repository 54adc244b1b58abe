"""Every byte of a measured peak, by what it is.

What was measured decides: pages of libraries and of the model's files, what the process had before the model came, what
loading and running then added. Within loading and running the prediction says what is expected; a part never gets more
than is left of what was measured, and what nothing explains is `unknown`. The parts add up to the peak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from onnxmem.errors import RuntimeUnsupported
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.protocol import IMPORT, INPUTS, LOAD, RUNS, TRIM
from onnxmem.measurement.trial import Phase
from onnxmem.prediction.prediction import PARTS, Part
from onnxmem.session.modes import Mode, find_mode
from onnxmem.unknown import Bytes, Unknown, known

LOADING, UNKNOWN = "loading", "unknown"
NAMES = (*PARTS[:7], LOADING, *PARTS[7:], UNKNOWN)
ABOUT = {
    "libraries": "pages of Python, ONNX Runtime, other files",
    "interpreter": "what Python holds before the model comes",
    "inputs": "the arrays that are fed",
    "weights": "constants, in the heap or mapped",
    "packed copies": "weights rearranged for their kernels",
    "session": "the graph, its kernels and their notes",
    "kept by the heap": "freed while loading, and not given back",
    LOADING: "copies made while loading, then dropped",
    "activations": "tensors that are alive at once in a run",
    "scratch": "working memory of operators, on top",
    "reuse": "places kept for tensors of the same size",
    "pattern": "a second block, from the second run on",
    "arena slack": "taken in powers of two, or in between",
    "outputs": "results of a run, which the caller holds",
    UNKNOWN: "what none of these explains",
}
"""What each part is."""

_LIBRARIES, _MODEL, _HEAP, _MAPPINGS = "libraries and other files", "model files", "heap", "arenas"
_KEPT = "kept by the heap"
_RUN = ("activations", "outputs", "scratch", "pattern", "reuse", "arena slack")
"""What runs take, the most certain first."""


def attribute(measurement: Measurement, expected: Mapping[str, int], loaded_as: str) -> tuple[Part, ...]:
    """The parts of the highest peak; `expected` is what each is predicted or known to be, in bytes.

    `loaded_as` is the mode in which it was loaded: of a package that is planned, the package's.
    """
    imported, fed, loaded = (state_of(measurement, name) for name in (IMPORT, INPUTS, LOAD))
    ends = [state_of(measurement, name) for name in (LOAD, *RUNS) if measurement.trial.phase(name)]
    # Releasing begins with all that running took, and may be a few pages more.
    peak, top = peak_of(measurement), max(ends, key=lambda state: state.peak)
    rest = _Rest(peak)
    rest.take("libraries", top.libraries)
    rest.take("interpreter", imported.anonymous)
    rest.take("inputs", fed.anonymous - imported.anonymous)
    mapped = min(top.mapped, rest.left)
    _take_mapped(rest, expected, mapped, loaded_as)
    if top.name == LOAD:
        rest.take(LOADING, top.peak - top.rss)
    room = min(rest.left, loaded.anonymous - fed.anonymous)
    left = _take_loaded(rest, expected, room, mapped, find_mode(loaded_as))
    if not find_mode(loaded_as).trim:
        _take_kept(rest, left, measurement)
    if top.name != LOAD:
        # From here on, what is left over from loading is not available: it was there before any run.
        room = min(rest.left, peak - top.libraries - top.mapped - loaded.anonymous)
        rest.fill(room, ((name, expected.get(name, 0)) for name in _RUN))
    rest.take(UNKNOWN, rest.left)
    return tuple(Part(name=name, bytes=rest.parts[name]) for name in NAMES if rest.parts.get(name))


def peak_of(measurement: Measurement) -> int:
    """The most that was ever resident."""
    peaks = known(phase.peak.rss for phase in measurement.phases)
    if not peaks:
        raise RuntimeUnsupported("the measurement has no peak: the memory of a process could not be read")
    return max(peaks)


def with_counted(expected: Mapping[str, int], measurement: Measurement, *, complete: bool) -> dict[str, int]:
    """What is predicted, completed by what ONNX Runtime itself counted.

    What its arena held and no tensor needed is slack; but if what is on paper is not `complete`, because sizes depend
    on data, then what was in use beyond it are tensors.
    """
    needed = sum(expected.get(name, 0) for name in ("activations", "outputs", "scratch", "reuse"))
    counted, held = _counted(measurement), _or_nothing(measurement.runtime.arena_held)
    if counted is None:
        return dict(expected)
    more = 0 if complete else max(0, counted - needed)
    slack = max(expected.get("arena slack", 0), held - _or_nothing(measurement.runtime.packed) - needed - more)
    return {**expected, "activations": expected.get("activations", 0) + more, "arena slack": slack}


def with_packed(expected: Mapping[str, int], measurement: Measurement, loaded_as: str) -> dict[str, int]:
    """With no more packed copies than ONNX Runtime counted: how large a kernel's are is only known roughly.

    It does not count those that a package brings along.
    """
    counted = measurement.runtime.packed
    if isinstance(counted, Unknown) or find_mode(loaded_as).form != "any":
        return dict(expected)
    return {**expected, "packed copies": min(expected.get("packed copies", 0), counted)}


def expected_without_model(measurement: Measurement) -> dict[str, int]:
    """What the measurement itself knows: ONNX Runtime's figures, outputs, the plan, what later runs add to the first.

    Where nobody counted, weights are as large as the file, and what the first run adds are tensors.
    """
    runtime, outputs = measurement.runtime, _or_nothing(measurement.output_bytes)
    weights = measurement.file_bytes if isinstance(runtime.weights, Unknown) else runtime.weights
    expected = {"weights": weights, "packed copies": _or_nothing(runtime.packed), "outputs": outputs}
    loaded, first, later = (state_of(measurement, name).anonymous for name in (LOAD, *RUNS))
    if measurement.scenario.mode == "stock":
        expected["pattern"] = max(0, later - first)
    plan = measurement.planned.plan_bytes if measurement.planned else None
    counted = _counted(measurement)
    if plan is not None:
        return {**expected, "activations": plan}
    if counted is None:
        return {**expected, "activations": max(0, first - loaded - outputs)}
    slack = max(0, _or_nothing(runtime.arena_held) - _or_nothing(runtime.arena_peak))
    return {**expected, "activations": max(0, counted - outputs), "arena slack": slack}


def _counted(measurement: Measurement) -> int | None:
    """The most that runs had allocated at once, by ONNX Runtime's count."""
    used, packed = measurement.runtime.arena_peak, measurement.runtime.packed
    return None if isinstance(used, Unknown) or isinstance(packed, Unknown) else max(0, used - packed)


def _or_nothing(size: Bytes) -> int:
    return 0 if isinstance(size, Unknown) else size


@dataclass(frozen=True, kw_only=True)
class State:
    """What a process had at the end of a phase, and at most in it."""

    name: str
    peak: int
    rss: int
    libraries: int
    mapped: int

    @property
    def anonymous(self) -> int:
        """All that is no page of a file, or of one that was changed."""
        return self.rss - self.libraries - self.mapped


def state_of(measurement: Measurement, name: str) -> State:
    """That of a phase; an error if the system did not tell."""
    phase = measurement.trial.phase(name)
    if phase is None:
        raise RuntimeUnsupported(f"the measurement has no phase '{name}'")
    if isinstance(phase.made_of, Unknown) or isinstance(phase.reading.rss, Unknown):
        why = phase.made_of.reason if isinstance(phase.made_of, Unknown) else "RSS is not known"
        raise RuntimeUnsupported(f"the measurement does not tell what its memory was: {why}")
    kinds = {kind.name: kind.rss for kind in phase.made_of}
    return State(
        name=name,
        peak=_peak(phase, phase.reading.rss),
        rss=phase.reading.rss,
        libraries=kinds.get(_LIBRARIES, 0),
        mapped=kinds.get(_MODEL, 0),
    )


def _peak(phase: Phase, otherwise: int) -> int:
    return max(otherwise, *known([phase.peak.rss]), 0)


@dataclass
class _Rest:
    """What of the peak has no name yet."""

    left: int
    parts: dict[str, int] = field(default_factory=dict)

    def take(self, name: str, size: int) -> int:
        """Give so much of it this name, or what there is."""
        taken = max(0, min(size, self.left))
        self.parts[name] = self.parts.get(name, 0) + taken
        self.left -= taken
        return taken

    def fill(self, room: int, wanted: Iterable[tuple[str, int]]) -> int:
        """The same for several, within so much; what of it is left."""
        for name, size in wanted:
            room -= self.take(name, min(size, room))
        return max(room, 0)


def _take_mapped(rest: _Rest, expected: Mapping[str, int], mapped: int, mode: str) -> None:
    """Pages of the model's files are weights; those of a file that holds packed ones, too, are these first."""
    packed = rest.take("packed copies", min(expected.get("packed copies", 0), mapped)) if mode == "prepacked" else 0
    rest.take("weights", mapped - packed)


def _take_loaded(rest: _Rest, expected: Mapping[str, int], room: int, mapped: int, mode: Mode) -> int:
    """What loading left in the heap; what of it has no name yet."""
    own = mode.form == "any" or mode.name == "ort"
    weights = max(0, expected.get("weights", 0) - mapped) if own else 0
    packed = expected.get("packed copies", 0) if own or mode.name == "external" else 0
    rearranged = (("packed copies", packed), ("weights", weights))
    return rest.fill(room, (*rearranged, *((name, expected.get(name, 0)) for name in ("session", _KEPT))))


def _take_kept(rest: _Rest, left: int, measurement: Measurement) -> None:
    """What came back after the session was either in use by it, or free and kept, which only the heap keeps."""
    used = sum(rest.parts.get(name, 0) for name in ("packed copies", "weights", "session"))
    most = min(_came_back(measurement, _HEAP), _came_back(measurement, _HEAP, _MAPPINGS) - used)
    rest.take(_KEPT, min(left, most - rest.parts.get(_KEPT, 0)))


def _came_back(measurement: Measurement, *kinds: str) -> int:
    """What of these went back to the system when the session was released and the heap was trimmed."""
    sizes = []
    for name in (LOAD, TRIM):
        phase = measurement.trial.phase(name)
        if phase is None or isinstance(phase.made_of, Unknown):
            return 0
        sizes.append(sum(kind.rss for kind in phase.made_of if kind.name in kinds))
    return sizes[0] - sizes[1]
