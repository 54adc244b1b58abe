"""What one tab of a browser has: its folder for uploads, its jobs and their results. All of it ends with the tab."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from onnxmem.app.jobs import Document, Job
from onnxmem.folders import temporary_folder
from onnxmem.session.trim import trim

_INTERVAL = 0.5
# A browser that loses its connection for a moment comes back with the same session.
_PATIENCE = 10.0
# Results that stay. Whoever drags a slider leaves an estimate at every stop, which is made anew in a moment.
_KEPT, _ESTIMATES_KEPT = 60, 6
_ESTIMATES = ("estimate", "plan", "fit")
# What comes after these is written.
_WRITES = ("-o", "--output", "--html")


class Workspace:
    """One tab's own."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.folder = self._stack.enter_context(temporary_folder())
        """Private to this user, and removed with the tab."""
        self.open = True
        self.others: dict[str, Any] = {}
        """What tabs keep that must be closed: by name, each with a `close`."""
        self._jobs: dict[tuple[str, ...], Job] = {}

    def ask(self, *words: str) -> Job:
        """The job of this verb on these files as they are now: the one there is, or a new one."""
        key = (*words, *_state_of(words))
        job = self._jobs.get(key)
        if job is None:
            if words[0] in _ESTIMATES:
                # Nobody waits any more for the estimate of a size that was only passed by.
                for old, other in list(self._jobs.items()):
                    if other.words[0] == words[0] and not other.ended:
                        other.cancel()
                        del self._jobs[old]
            job = self._jobs[key] = Job(words, lambda: self.open)
            self._forget_old()
        return job

    def _forget_old(self) -> None:
        ended = [key for key, each in self._jobs.items() if each.ended]
        quick = [key for key in ended if key[0] in _ESTIMATES]
        for key in {*quick[:-_ESTIMATES_KEPT], *ended[:-_KEPT]}:
            del self._jobs[key]

    def forget(self, *words: str) -> None:
        """The next who asks gets a new job."""
        self._jobs.pop((*words, *_state_of(words)), None)

    def find(self, *words: str) -> Job | None:
        """The job of this verb on these files, if there is one."""
        return self._jobs.get((*words, *_state_of(words)))

    def running(self, verb: str) -> list[Job]:
        """The jobs of a verb that are still at work."""
        return [job for job in list(self._jobs.values()) if job.words[0] == verb and not job.ended]

    def jobs(self, *verbs: str) -> list[Job]:
        """All jobs of these verbs, in the order in which they were begun."""
        return [job for job in list(self._jobs.values()) if job.words[0] in verbs]

    def results(self, *verbs: str) -> list[Document]:
        """What they have found."""
        return [job.document for job in self.jobs(*verbs) if job.document is not None]

    def close(self) -> None:
        """End everything, and remove the folder."""
        self.open = False
        for job in list(self._jobs.values()):
            job.cancel()
        for job in list(self._jobs.values()):
            job.wait(10)
        for other in self.others.values():
            other.close()
        self._stack.close()


def _state_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """The size and time of the files that are read: another file of that name is another question."""
    states = []
    for before, word in pairwise(words):
        path = Path(word)
        if before not in _WRITES and not word.startswith("-") and path.exists():
            found = path.stat()
            states.append(f"{found.st_size}:{found.st_mtime_ns}")
    return tuple(states)


class _Sweeper:
    """Closes the workspaces of tabs that are gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spaces: dict[str, Workspace] = {}
        self._gone_since: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def workspace(self, session: str) -> Workspace:
        """That of a session."""
        with self._lock:
            if session not in self._spaces:
                self._spaces[session] = Workspace()
            if self._thread is None:
                self._thread = threading.Thread(target=self._sweep, name="onnxmem-sweeper", daemon=True)
                self._thread.start()
            return self._spaces[session]

    def close_all(self) -> None:
        """The server ends."""
        with self._lock:
            spaces, self._spaces = list(self._spaces.values()), {}
        for space in spaces:
            space.close()

    def _sweep(self) -> None:
        while True:
            time.sleep(_INTERVAL)
            now = time.monotonic()
            with self._lock:
                for session in self._spaces:
                    if _is_open(session):
                        self._gone_since.pop(session, None)
                    else:
                        self._gone_since.setdefault(session, now)
                late = [session for session, since in self._gone_since.items() if now - since > _PATIENCE]
                gone = [self._spaces.pop(session) for session in late if session in self._spaces]
                for session in late:
                    del self._gone_since[session]
            for space in gone:
                space.close()
            if gone:
                trim()


def _is_open(session: str) -> bool:
    from streamlit import runtime  # noqa: PLC0415

    return not runtime.exists() or runtime.get_instance().is_active_session(session)


_sweeper = _Sweeper()


def workspace() -> Workspace:
    """That of the tab for which this is called."""
    from streamlit.runtime.scriptrunner import get_script_run_ctx  # noqa: PLC0415

    context = get_script_run_ctx()
    return _sweeper.workspace(context.session_id if context else "")


def close_all() -> None:
    """The server ends: so does everything that tabs have begun."""
    _sweeper.close_all()
