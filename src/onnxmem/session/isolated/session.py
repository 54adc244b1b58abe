"""A session in a process of its own: the same `run()`, and all of its memory back when it is closed."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from onnxmem.errors import SessionClosed, SessionError, SessionLost, UsageError
from onnxmem.session.argument import Argument
from onnxmem.session.isolated.channel import Gone, Late, Load
from onnxmem.session.isolated.process import Child
from onnxmem.session.isolated.wire import Parcel
from onnxmem.session.modes import find_mode
from onnxmem.session.package import is_package


@dataclass(frozen=True)
class ModelMeta:
    """What the model says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    version: int
    custom_metadata_map: dict[str, str]


class IsolatedSession:
    """How do I get *all* the memory back? Run the model in a child process and close it.

    `run()` is ONNX Runtime's. Inputs are copied once, into shared memory; outputs are arrays in shared memory that stay
    valid as long as they are referenced, also after `close()`. Threads may call at the same time. If the child dies,
    the calls it was working on raise `SessionLost` and the next call starts a new one.

    `options` are attributes of `onnxruntime.SessionOptions` ("intra_op_num_threads": 1, enumerations by name) and
    configuration entries ("session.disable_prepacking": "1"). A SessionOptions object itself cannot be taken to another
    process, because it does not tell all that was set on it. The same holds for `run_options`. `mode` is one of those
    of `onnxmem.InferenceSession`, and `path` may then be a package's folder. `on_start` is told the child's process id
    before the model is loaded, for watching its memory from the beginning. A child that takes longer than `time_limit`
    seconds to load the model or to answer a call is ended, and all its calls raise `SessionLost`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Mapping[str, Any] | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        *,
        mode: str = "stock",
        on_start: Callable[[int], None] | None = None,
        time_limit: float | None = None,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise UsageError(f"an isolated session takes the path of a model, not {type(path).__name__}")
        if time_limit is not None and not time_limit > 0:
            raise UsageError(f"the time limit must be more than 0 seconds, not {time_limit:g}")
        self._time_limit = time_limit
        self._path = Path(path).absolute()  # the process may be elsewhere when the child is started again
        self._request = Load(
            path=str(self._path),
            mode=find_mode(mode).name,
            options=_settings(options, "options"),
            providers=[_provider(entry) for entry in providers] if providers else None,
        )
        self._lock = threading.RLock()  # reentrant: a handler of signals may close what its own thread is starting
        self._owner = os.getpid()
        self._closed = False
        self._on_start = on_start
        self._child: Child | None = None
        self._start()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Run the model once, as `onnxruntime.InferenceSession.run` does."""
        fetch = self._names(output_names, input_feed)
        parcel = Parcel()
        feeds = {name: parcel.add(value, name) for name, value in input_feed.items()}
        options = _settings(run_options, "run options")
        child = self._living()
        try:
            lane = child.lane()
            try:
                return lane.call(fetch, feeds, options, parcel)
            finally:
                child.give_back(lane)
        except Gone as gone:
            raise self._lost(child, gone) from None

    def trim(self) -> None:
        """Give memory that the child has freed back to the system: the C library keeps it for later."""
        child = self._living()
        try:
            child.trim()
        except Gone as gone:
            raise self._lost(child, gone) from None

    def get_inputs(self) -> list[Argument]:
        """The model's inputs."""
        return _arguments(self._about.inputs)

    def get_outputs(self) -> list[Argument]:
        """The model's outputs."""
        return _arguments(self._about.outputs)

    def get_overridable_initializers(self) -> list[Argument]:
        """The weights that may be fed like inputs."""
        return _arguments(self._about.overridable)

    def get_providers(self) -> list[str]:
        """The execution providers in use."""
        return list(self._about.providers)

    def get_provider_options(self) -> dict[str, Any]:
        """The settings of the execution providers."""
        return dict(self._about.provider_options)

    @property
    def loaded_mode(self) -> str:
        """The name of the mode it really is in: a session that could not be planned says what it is instead."""
        return self._about.mode

    def get_modelmeta(self) -> ModelMeta:
        """What the model says about itself."""
        return ModelMeta(**self._about.meta)

    @property
    def pid(self) -> int | None:
        """The child's process id, for looking at its memory; None when there is none."""
        child = self._child
        return child.process.pid if child else None

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""
        return self._closed

    def close(self) -> None:
        """End the child and wait for it: when this returns, its memory is the system's again. Harmless when repeated.

        Outputs that are still referenced stay valid; each of them keeps only its own memory.
        """
        # In a fork, another thread of the parent may have held the lock.
        with self._lock if os.getpid() == self._owner else nullcontext():
            self._child, self._closed = None, True
        self._end()

    def __enter__(self) -> IsolatedSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        if not self._path.is_file() and not is_package(self._path):
            raise UsageError(f"cannot read '{self._path}': there is no such file")
        child = Child(self._time_limit)
        # Also when the session is dropped without close(), and when the interpreter ends.
        self._end = end = weakref.finalize(self, child.end)
        try:
            if self._on_start is not None:
                self._on_start(child.process.pid)
            about = child.load(self._request)
        except Gone as gone:
            raise self._was_closed() if self._closed else self._died(child, gone, "while loading the model") from None
        except BaseException:
            end()
            raise
        if self._closed:
            end()
            raise self._was_closed()
        if self._child is not None:  # a handler of signals that ran the session meanwhile has started it
            end()
            return
        self._about, self._end, self._child = about, end, child

    def _living(self) -> Child:
        if os.getpid() != self._owner:
            raise SessionError("an isolated session cannot be used in a fork", hint="make one in the new process")
        with self._lock:
            if self._closed:
                raise self._was_closed()
            if self._child is None:
                self._start()
            assert self._child is not None
            return self._child

    def _lost(self, child: Child, gone: Gone) -> SessionError:
        """The error for a call that will get no answer; the next one gets a new child."""
        with self._lock:
            if self._closed:
                return self._was_closed()
            # Several threads may have lost the same child, and one of them may already have started another.
            if self._child is child:
                self._child = None
                self._end.detach()
        return self._died(child, gone, "and this call is lost", hint="call again: a new process is started")

    def _died(self, child: Child, gone: Gone, what: str, hint: str = "") -> SessionLost:
        fate = child.fate(late=isinstance(gone, Late))
        return SessionLost(f"the process of the session '{self._path.name}' {fate}, {what}", hint=hint)

    def _was_closed(self) -> SessionClosed:
        return SessionClosed(f"the session '{self._path.name}' was closed", hint="make a new one")

    def _names(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[str]:
        """The outputs to fetch, once all names are known to be right: wrong ones need no journey."""
        if output_names and isinstance(output_names, str | bytes | Mapping):
            raise TypeError(f"the names of outputs are a list, and {output_names!r} is none")
        about, output_names = self._about, list(output_names or ())  # it may come from a generator
        outputs = [name for name, _, _ in about.outputs]
        known = [name for name, _, _ in (*about.inputs, *about.overridable)]
        for names, valid, kind in ((feeds, known, "input"), (output_names, outputs, "output")):
            for name in names:
                if name not in valid:
                    raise UsageError(f"the model has no {kind} '{name}'", hint=f"it has: {', '.join(valid)}")
        missing = [name for name, kind, _ in about.inputs if name not in feeds and not kind.startswith("optional")]
        if missing:
            raise UsageError(f"nothing was given for the input '{missing[0]}'", hint=f"needed: {', '.join(missing)}")
        return output_names or outputs


def _arguments(entries: Sequence[tuple[str, str, Sequence[int | str | None]]]) -> list[Argument]:
    return [Argument(name, kind, list(shape)) for name, kind, shape in entries]


def _settings(settings: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise UsageError(
            f"{what} of an isolated session are a mapping, not a {type(settings).__name__}",
            hint='for example {"intra_op_num_threads": 1, "session.disable_prepacking": "1"}',
        )
    return dict(settings)


def _provider(entry: str | tuple[str, Mapping[str, Any]]) -> Any:
    return entry if isinstance(entry, str) else [entry[0], dict(entry[1])]
