"""Work that begins with a button: which job was asked for in a place, and what came of it."""

from __future__ import annotations

import streamlit as st

from onnxmem.app.jobs import Document, Job
from onnxmem.app.show import finished, show_error
from onnxmem.app.workspace import Workspace

_ASKED = "asked"


def last_asked(space: Workspace, place: tuple[str, ...], words: tuple[str, ...] | None = None) -> Job | None:
    """The job that was last asked for in a place; `words` ask for another. None if there is none any more."""
    asked: dict[tuple[str, ...], tuple[str, ...]] = st.session_state.setdefault(_ASKED, {})
    if words is not None:
        asked[place] = words
        job = space.find(*words)
        if job is not None and job.ended and job.document is None:
            space.forget(*words)
        return space.ask(*words)
    return space.find(*asked[place]) if place in asked else None


def outcome(job: Job | None, key: str, what: str) -> Document | None:
    """What it has found, and beside that what it complains of; its progress while there is nothing yet."""
    if job is None or not finished(job, key, what):
        return None
    show_error(job)
    return job.document
