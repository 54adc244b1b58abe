"""A session in a process of its own that the page loads, runs and unloads, with its memory watched all the while."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem.documents import Record
from onnxmem.errors import ModelError, OnnxmemError
from onnxmem.measurement import probes
from onnxmem.process.child import run_child, serve
from onnxmem.session.isolated.session import IsolatedSession

Document = dict[str, Any]
_INTERVAL = 0.04
# Nothing moves any more: nobody needs to look. What passes meanwhile is not drawn.
_QUIET = 15.0
_STEP = 0.25
_TIME = 60.0
# As many as a page shows; of those that fall together the largest is kept.
_SHOWN = 300


@dataclass(frozen=True, kw_only=True)
class Task(Record):
    """Inputs for a model at these sizes, to be written into a folder."""

    path: str
    dims: Mapping[str, int]
    folder: str


@dataclass(frozen=True, kw_only=True)
class Written(Record):
    """Where each of them is."""

    feeds: tuple[tuple[str, str], ...]


class Live:
    """One session, its orders one at a time, and what its process took."""

    def __init__(self, path: Path, mode: str, folder: Path) -> None:
        self.path, self.mode = path, mode
        self.busy = self.error = self.hint = ""
        """What is being done; what went wrong with the last order."""
        self.runs = 0
        self._folder = folder
        self._made: tuple[dict[str, int], tuple[tuple[str, str], ...]] | None = None
        self._session: IsolatedSession | None = None
        self._pid: int | None = None
        self._marks: list[tuple[str, float]] = []
        self._samples: list[probes.Sample] = []
        self._moved = 0.0
        self._closed = False
        self._watcher: threading.Thread | None = None

    @property
    def loaded(self) -> bool:
        """Is there a model in memory?"""
        return self._session is not None

    @property
    def moving(self) -> bool:
        """Is it worth looking again in a moment?"""
        return bool(self.busy) or time.monotonic() - self._moved < _QUIET

    @property
    def rss(self) -> int | None:
        """What its process takes; 0 when it has ended, None before the first."""
        return self._samples[-1].rss if self._samples else None

    @property
    def highest(self) -> int:
        """The most that was seen."""
        return max((sample.rss for sample in self._samples), default=0)

    def load(self, dims: Mapping[str, int]) -> None:
        """Begin to load it, and make inputs of these sizes. What was seen of the one before is dropped."""

        def work() -> None:
            self._session = IsolatedSession(self.path, mode=self.mode, on_start=self._watch)
            self._inputs(dims)

        self._marks, self._samples, self._pid, self.runs = [], [], None, 0
        self._order("load", work)

    def run(self, dims: Mapping[str, int]) -> None:
        """Begin to run it once, on inputs of these sizes."""

        def work() -> None:
            assert self._session is not None
            feeds = self._inputs(dims)
            # The inputs were made before the run, and so the line begins with the run.
            self._mark(f"run {self.runs + 1}")
            self._session.run(None, feeds)
            self.runs += 1

        self._order("run", work, mark=False)

    def trim(self) -> None:
        """Have it give freed memory back."""

        def work() -> None:
            assert self._session is not None
            self._session.trim()

        self._order("trim", work)

    def unload(self) -> None:
        """End its process, and with it all it took."""
        self._order("unload", self._end)

    def close(self) -> None:
        """The tab is gone."""
        self._closed = True
        if self.busy == "load" and self._pid is not None:
            # There is no session yet that could be closed, and a large model loads for long.
            with suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
        self._end()

    def document(self) -> Document:
        """What was done when, and what was resident: as a timeline has it."""
        samples = _thinned(list(self._samples))
        end = samples[-1].at if samples else 0.0
        marks = list(self._marks)
        ends = [*(at for _, at in marks[1:]), end]
        phases = []
        for (name, began), until in zip(marks, ends, strict=False):
            inside = [sample.rss for sample in samples if began <= sample.at <= until]
            phases.append({"name": name, "began_seconds": began, "seconds": max(until - began, 0.0),
                           "peak_rss_bytes": max(inside, default=None)})  # fmt: skip
        timeline = [{"seconds": s.at, "rss_bytes": s.rss, "file_bytes": s.file} for s in samples]
        return {"model": self.path.name, "phases": phases, "timeline": timeline}

    def _order(self, name: str, work: Callable[[], None], *, mark: bool = True) -> None:
        """In a thread: whatever takes long must not hold up the page."""
        if self.busy:
            return
        self.busy, self.error, self.hint = name, "", ""

        def obey() -> None:
            try:
                if mark:
                    self._mark(name)
                work()
            except OnnxmemError as error:
                self.error, self.hint = str(error), error.hint
            except Exception as error:  # the page has to say so, not to wait for ever
                self.error = f"this could not be done: {error}"
            finally:
                if self._session is not None and self._session.pid is None:
                    self._end()
                self._moved, self.busy = time.monotonic(), ""
                if self._closed:
                    self._end()

        threading.Thread(target=obey, name=f"onnxmem-live-{name}", daemon=True).start()

    def _inputs(self, dims: Mapping[str, int]) -> dict[str, Any]:
        """Those for these sizes; their files are made once."""
        import numpy as np  # noqa: PLC0415

        if self._made is None or self._made[0] != dims:
            self._made = (dict(dims), _make_feeds(self.path, dims, self._folder))
        return {name: np.load(where) for name, where in self._made[1]}

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _mark(self, name: str) -> None:
        self._moved = time.monotonic()
        self._marks.append((name, self._samples[-1].at if self._samples else 0.0))

    def _watch(self, pid: int) -> None:
        self._pid = pid
        if self._watcher is None or not self._watcher.is_alive():
            self._watcher = threading.Thread(target=self._look, name="onnxmem-live-watch", daemon=True)
            self._watcher.start()

    def _look(self) -> None:
        """While it moves; a pause takes no time in the picture."""
        clock, before = 0.0, time.monotonic()
        while not self._closed and (self._session is not None or self.moving):
            if self.moving:
                now = time.monotonic()
                # Begun anew: another session.
                clock = clock + min(now - before, _STEP) if self._samples else 0.0
                before = now
                seen = probes.sample(self._pid)
                rss, file = (seen.rss, seen.file) if seen is not None else (0, 0)
                self._samples.append(probes.Sample(clock, rss, file))
            time.sleep(_INTERVAL)


def _thinned(samples: list[probes.Sample]) -> list[probes.Sample]:
    """At most so many, none of the heights lost."""
    width = max(-(-len(samples) // _SHOWN), 1)
    kept = [max(samples[k : k + width], key=lambda sample: sample.rss) for k in range(0, len(samples), width)]
    # The last as it is: a bar that has just fallen must not seem to stand.
    return [*kept[:-1], samples[-1]] if kept else []


def _make_feeds(path: Path, dims: Mapping[str, int], folder: Path) -> tuple[tuple[str, str], ...]:
    """In a process of its own: to know what a model takes, its file has to be read."""
    ended = run_child(__name__, Task(path=str(path), dims=dims, folder=str(folder)), timeout=_TIME)
    if ended.timed_out:
        raise ModelError(f"no inputs for '{path.name}' could be made within {_TIME:.0f} seconds")
    if ended.code != 0:
        raise ModelError(ended.last_line)
    return ended.read(Written).feeds


def _write_feeds(task: Task) -> Written:
    from onnxmem.measurement.feeds import make_feeds  # noqa: PLC0415
    from onnxmem.measurement.scenario import Scenario  # noqa: PLC0415
    from onnxmem.measurement.signature import read_signature  # noqa: PLC0415

    path = Path(task.path)
    feeds = make_feeds(read_signature(path), Scenario(model=path, dims=task.dims))
    return Written(feeds=tuple((name, where) for name, where in feeds.save(Path(task.folder))))


def main() -> None:
    """The child's."""
    serve(Task, _write_feeds)
