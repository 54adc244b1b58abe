"""Is the memory of a session really given back, here, in this process?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from onnxmem.documents import Record
from onnxmem.errors import ModelError, OnnxmemError
from onnxmem.measurement import probes
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.probes import Reading, System, read_system
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.releasing.release import Released, amount, release
from onnxmem.result import Result
from onnxmem.session.isolated.worker import error_text
from onnxmem.session.options import silent
from onnxmem.units import format_percent, format_times
from onnxmem.unknown import Bytes, Unknown, combine, subtract

# Below this, something that could be found and named keeps memory; above, what is missing is the runtime's own.
_GOOD = 0.98


class Declared(NamedTuple):
    """An input or output of a session, as the model declares it."""

    type: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True, kw_only=True)
class SessionFacts(Record):
    """What a session tells about itself before it is released."""

    model: str
    graph: str = ""
    producer: str = ""
    providers: tuple[str, ...] = ()
    inputs: Mapping[str, Declared] = field(default_factory=dict)
    outputs: Mapping[str, Declared] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tracking(Result):
    """What releasing one session did to this process."""

    SCHEMA: ClassVar[str] = "onnxmem.track/1"

    file_bytes: Bytes
    """The model's files, external weights included."""
    session: SessionFacts
    before_load: Reading | None
    """Before the model was loaded; None if that was the caller's doing."""
    released: Released
    system_before: System
    """The whole system just before releasing …"""
    system_after: System
    """… and just after. Other programs are in both: what changes is theirs as much as ours."""
    seconds: float

    @property
    def freed(self) -> Bytes:
        """Resident memory (RSS) of this process that was given back."""
        return self.released.freed

    @property
    def freed_by_file_size(self) -> float | Unknown:
        """Freed ÷ file size. No measure of success: packed weights and arenas make it more than 1, mapping less."""
        return combine(lambda a, b: a / b if b else Unknown("the file is empty"), self.freed, self.file_bytes)

    @property
    def brought(self) -> Bytes:
        """The anonymous memory of this process that loading and running took."""
        if self.before_load is None:
            return Unknown("the model was loaded before the tracking began")
        return subtract(self.released.before.anon, self.before_load.anon)

    @property
    def returned_fraction(self) -> float | Unknown:
        """The part of it that is back."""
        missing = Unknown("the model took no memory that could be measured")
        return combine(lambda back, all_: back / all_ if all_ > 0 else missing, self.released.freed_anon, self.brought)

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
            return (
                "Released: the session is destroyed and the allocator trimmed; which part of its memory came back "
                f"cannot be told, because {fraction.reason}."
            )
        of = f"of the {amount(self.brought)} of anonymous memory that the model brought"
        back = f"{format_percent(fraction)} {of} came back"
        if fraction >= _GOOD:
            return f"Released: {back}."
        return (
            f"Released in part: {back}; the rest is small change of the runtime's, or memory that this process took "
            "meanwhile."
        )

    def derived(self) -> Mapping[str, Any]:
        """What was freed, and the verdict."""
        return {
            "freed_bytes": self.freed,
            "freed_by_file_size": self.freed_by_file_size,
            "brought_bytes": self.brought,
            "returned_fraction": self.returned_fraction,
            "verdict": self.verdict,
        }

    def __repr__(self) -> str:
        done, back = self.released, self.returned_fraction
        of = "" if isinstance(back, Unknown) else f", {format_percent(back)} of what the model brought is back"
        found = str(done) if done.already or done.held_by else f"{amount(self.freed)} freed{of}"
        return f"<Tracking of {self.session.model}: {found}>"

    def __str__(self) -> str:
        ratio, done = self.freed_by_file_size, self.released
        by_file = "" if isinstance(ratio, Unknown) else f" ({format_times(ratio)} the file's {amount(self.file_bytes)})"
        of = f"anonymous {amount(done.freed_anon)}, file-backed {amount(done.freed_file)}"
        before, after = amount(self.system_before.anon), amount(self.system_after.anon)
        return "\n".join(
            (
                f"{self.session.model}: {', '.join(self.session.providers)}",
                f"RSS of this process: {amount(done.before.rss)} → {amount(done.after.rss)}",
                f"freed by this process: {amount(self.freed)}{by_file}; {of}",
                f"anonymous memory system-wide, other programs included: {before} → {after}",
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
    before_load, session = None, model
    if isinstance(model, str | PathLike):
        scenario = Scenario.of(locals())
        feeds = make_feeds(read_signature(scenario.model), scenario)
        before_load, session = _load_and_run(scenario, feeds.arrays)
    facts, file_bytes = _facts(session), _file_bytes(session)
    began, system_before = time.monotonic(), read_system()
    released = release(session)
    seconds, system_after = time.monotonic() - began, read_system()
    result = Tracking(
        file_bytes=file_bytes,
        session=facts,
        before_load=before_load,
        released=released,
        system_before=system_before,
        system_after=system_after,
        seconds=seconds,
    )
    if verbose:
        print(result)  # noqa: T201
    return result


def _load_and_run(scenario: Scenario, feeds: Mapping[str, Any]) -> tuple[Reading, Any]:
    import onnxruntime as ort  # noqa: PLC0415  first, so that it is not counted as the model's

    before = probes.read()
    try:
        options = silent(ort.SessionOptions())
        session = ort.InferenceSession(str(scenario.model), options, providers=["CPUExecutionProvider"])
        for _ in range(scenario.runs):
            session.run(None, dict(feeds), silent(ort.RunOptions()))
    except Exception as error:  # onnxruntime raises a dozen classes of its own
        raise ModelError(f"ONNX Runtime cannot run '{scenario.model.name}': {error_text(error)}") from error
    return before, session


def _facts(session: Any) -> SessionFacts:
    """What the session tells about itself; nothing of it refers to the session."""
    path = getattr(session, "_model_path", None)
    try:
        meta = session.get_modelmeta()
        return SessionFacts(
            model=Path(path).name if path else meta.graph_name or "a model in memory",
            graph=meta.graph_name,
            producer=meta.producer_name,
            providers=tuple(session.get_providers()),
            inputs={value.name: Declared(value.type, tuple(value.shape)) for value in session.get_inputs()},
            outputs={value.name: Declared(value.type, tuple(value.shape)) for value in session.get_outputs()},
        )
    except (OnnxmemError, AttributeError):  # released before, or not a session: release() will say
        return SessionFacts(model=Path(path).name if path else type(session).__name__)


def _file_bytes(session: Any) -> Bytes:
    held = getattr(session, "_model_bytes", None)
    if held is not None:
        return len(held)
    path = getattr(session, "_model_path", None) or getattr(session, "_path", None)
    try:
        return read_signature(Path(path)).file_size if path else Unknown("the session does not tell its file")
    except OnnxmemError as error:
        return Unknown(str(error))
