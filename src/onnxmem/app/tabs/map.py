"""Not yet."""

from __future__ import annotations

import streamlit as st

from onnxmem.app.choice import Choice
from onnxmem.app.jobs import Job
from onnxmem.app.workspace import Workspace


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """Nothing."""
    st.markdown("…")
