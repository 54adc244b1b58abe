"""Is the memory of a session really given back, here, in this process?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem.errors import ModelError, OnnxmemError
from onnxmem.measurement import probes
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.probes import Reading
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.measurement.system import System, read_system
from onnxmem.releasing.release import Released, difference, release
from onnxmem.session.isolated.worker import error_text
from onnxmem.units import format_bytes
from onnxmem.unknown import Bytes, Unknown

# Below this, something that could be found and named keeps memory; above, what is missing is the runtime's own.
_GOOD = 0.98


@dataclass(frozen=True)
class Tracking:
    """What releasing one session did to this process and to the system."""

    file_bytes: Bytes
    """The model's files, external weights included."""
    session: Mapping[str, Any]
    """Providers, inputs, outputs and names, as the session told before it was released."""
    before_load: Reading | None
    """Before the model was loaded; None if that was the caller's doing."""
    released: Released
    system_before: System
    """The whole system just before releasing …"""
    system_after: System
    """… and just after."""
    seconds: float

    @property
    def freed(self) -> Bytes:
        """Resident memory (RSS) of this process that was given back."""
        return self.released.freed

    @property
    def freed_by_file_size(self) -> float | Unknown:
        """Freed ÷ file size. No measure of success: packed weights and arenas make it more than 1, mapping less."""
        if isinstance(self.freed, Unknown):
            return self.freed
        if isinstance(self.file_bytes, Unknown):
            return self.file_bytes
        return self.freed / self.file_bytes if self.file_bytes else Unknown("the file is empty")

    @property
    def system_freed(self) -> Bytes:
        """How much less anonymous memory all processes together have."""
        return difference(self.system_before.anon, self.system_after.anon)

    @property
    def returned_fraction(self) -> float | Unknown:
        """The part of the anonymous memory that loading and running took, and that is back."""
        if self.before_load is None:
            return Unknown("the model was loaded before the tracking began")
        growth = difference(self.released.before.anon, self.before_load.anon)
        left = difference(self.released.after.anon, self.before_load.anon)
        if isinstance(growth, Unknown) or isinstance(left, Unknown):
            return growth if isinstance(growth, Unknown) else Unknown("it cannot be read")
        return 1.0 - left / growth if growth > 0 else Unknown("the model took no memory that could be measured")

    @property
    def verdict(self) -> str:
        """What happened, in one honest sentence."""
        done, fraction = self.released, self.returned_fraction
        if done.already or done.held_by:
            return f"Nothing was released: {done}."
        if done.live_outputs:
            kept = ", ".join(map(str, done.live_outputs))
            return f"Released in part: outputs that are still referred to keep the arena they lie in: {kept}."
        if isinstance(done.trimmed, Unknown):
            return f"The session is destroyed, but the allocator may keep what it freed: {done.trimmed.reason}."
        if isinstance(fraction, Unknown):
            why = f"which part of its memory that is cannot be told, because {fraction.reason}"
            return f"Released: the session is destroyed and the allocator trimmed; {why}."
        if fraction >= _GOOD:
            return f"Released: {fraction:.1%} of the anonymous memory that the model took is back."
        return (
            f"Released in part: {fraction:.1%} of the anonymous memory that the model took is back; the rest is small \
change of the runtime's, or memory that this process took meanwhile."
        )

    def __str__(self) -> str:
        ratio = self.freed_by_file_size
        by_file = "" if isinstance(ratio, Unknown) else f" ({ratio:.2f} × the file's {_size(self.file_bytes)})"
        of = f"anonymous {_size(self.released.freed_anon)}, file-backed {_size(self.released.freed_file)}"
        return "\n".join(
            (
                f"{self.session['model']}: {', '.join(self.session['providers'])}",
                f"RSS {_size(self.released.before.rss)} → {_size(self.released.after.rss)}",
                f"freed {_size(self.freed)}: {of}{by_file}",
                f"all processes of the system together: {_size(self.system_freed)} of anonymous memory less",
                self.verdict,
            )
        )


def track_onnx_runtime_memory_release(
    model: Any,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
    runs: int = 3,
    verbose: bool = False,
) -> Tracking:
    """Release a session in this process and say what came back. `model` is a session, or a path to load and run first.

    With a path, it is known what the model took, and so which part of it is back. `verbose` prints the result, too.
    """
    before_load = None
    if isinstance(model, str | Path):
        scenario = Scenario(Path(model), shapes=shapes or {}, dims=dims or {}, runs=runs)
        feeds = make_feeds(read_signature(scenario.model), scenario)
        before_load, session = _load_and_run(scenario, feeds.arrays)
    else:
        session = model
    details, file_bytes = _details(session), _file_bytes(session)
    began, system_before = time.monotonic(), read_system()
    released = release(session)
    seconds, system_after = time.monotonic() - began, read_system()
    result = Tracking(file_bytes, details, before_load, released, system_before, system_after, seconds)
    if verbose:
        print(result)  # noqa: T201
    return result


def _load_and_run(scenario: Scenario, feeds: Mapping[str, Any]) -> tuple[Reading, Any]:
    import onnxruntime as ort  # noqa: PLC0415  first, so that it is not counted as the model's

    before = probes.read()
    try:
        session = ort.InferenceSession(str(scenario.model), providers=["CPUExecutionProvider"])
        for _ in range(scenario.runs):
            session.run(None, dict(feeds))
    except Exception as error:  # onnxruntime raises a dozen classes of its own
        raise ModelError(f"ONNX Runtime cannot run '{scenario.model.name}': {error_text(error)}") from error
    return before, session


def _details(session: Any) -> dict[str, Any]:
    """What the session tells about itself; nothing of it refers to the session."""
    path = getattr(session, "_model_path", None)
    try:
        meta = session.get_modelmeta()
        return {
            "model": Path(path).name if path else meta.graph_name or "a model in memory",
            "graph": meta.graph_name,
            "producer": meta.producer_name,
            "providers": list(session.get_providers()),
            "inputs": {value.name: (value.type, list(value.shape)) for value in session.get_inputs()},
            "outputs": {value.name: (value.type, list(value.shape)) for value in session.get_outputs()},
        }
    except (OnnxmemError, AttributeError):  # released before, or not a session: release() will say
        return {"model": Path(path).name if path else type(session).__name__, "providers": []}


def _file_bytes(session: Any) -> Bytes:
    held = getattr(session, "_model_bytes", None)
    if held is not None:
        return len(held)
    path = getattr(session, "_model_path", None) or getattr(session, "_path", None)
    try:
        return read_signature(Path(path)).file_size if path else Unknown("the session does not tell its file")
    except OnnxmemError as error:
        return Unknown(str(error))


def _size(value: Bytes) -> str:
    return "an unknown amount" if isinstance(value, Unknown) else format_bytes(value)
