"""An isolated session that is watched from its start, and gives freed memory back when asked."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from onnxmem import IsolatedSession, SessionClosed, SessionLost
from tests.helpers import alive
from tests.integration.test_isolated import X


def test_it_can_be_watched_from_its_start_and_trimmed(model: Path) -> None:
    told: list[tuple[int, bool]] = []
    with IsolatedSession(model, on_start=lambda pid: told.append((pid, alive(pid)))) as session:
        assert told == [(session.pid, True)]
        session.run(None, {"x": X})
        session.trim()
        # The control channel is as it was: another lane can be opened.
        results: list[Any] = []
        threads = [threading.Thread(target=lambda: results.append(session.run(None, {"x": X}))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 2
    with pytest.raises(SessionClosed):
        session.trim()


def test_a_child_that_dies_is_lost_to_trim_as_well(model: Path) -> None:
    session = IsolatedSession(model)
    assert session.pid is not None
    os.kill(session.pid, signal.SIGKILL)
    with pytest.raises(SessionLost):
        session.trim()
    session.trim()
