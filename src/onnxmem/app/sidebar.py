"""The sidebar: which model, at which sizes, in which mode, within which budget?"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from onnxmem.app import uploads
from onnxmem.app.choice import MODES, Document, dimensions
from onnxmem.app.settings import current
from onnxmem.app.workspace import Workspace
from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.report.render.to_markdown import escape
from onnxmem.units import format_bytes, parse_bytes

_FIRST = "unet"
_ZOO = "zoo: "
# So many uploads of a tab stay.
_KEPT = 8


def choose_model(space: Workspace) -> Path | None:
    """The model to look at; None while one is being made."""
    from onnxmem.zoo import MODELS  # noqa: PLC0415

    _take_uploads(space)
    given = _given()
    names = [*given, *(f"{_ZOO}{name}" for name in MODELS)]
    first = 0 if given else names.index(f"{_ZOO}{_FIRST}")
    # Another field after each upload, which begins with it: to set the value of one that is there would be a race with
    # what the browser still believes.
    key = f"model {len(st.session_state['uploads'])}"
    chosen = st.selectbox("Model", names, index=first, key=key, format_func=lambda name: _label(name, given))
    if chosen in given:
        return given[chosen]
    return _from_zoo(space, chosen.removeprefix(_ZOO))


def known_models(space: Workspace) -> dict[str, Path]:
    """All that can be chosen without making it first, by the names they are shown under."""
    given = _given()
    made = {job.words[1]: Path(job.words[3]) for job in space.jobs("zoo") if job.ended}
    shown = {f"{_ZOO}{name}": path for name, path in made.items() if path.exists()}
    return {**{_label(name, given): path for name, path in given.items()}, **shown}


def _given() -> dict[str, Path]:
    own: list[Path] = st.session_state.setdefault("uploads", [])
    kept = [path for path in reversed(own) if path.exists()]
    return {str(path): path for path in (*kept, *current().models)}


def _label(name: str, given: dict[str, Path]) -> str:
    path = given.get(name)
    if path is None:
        return name
    twins = [other for other in given.values() if other.name == path.name]
    return path.name if len(twins) == 1 else f"{path.parent.name}/{path.name}"


def _take_uploads(space: Workspace) -> None:
    """Offer to upload, and keep what came. The field is a new one each time, so that the server drops its copy."""
    limit, count = current().upload_limit, st.session_state.setdefault("upload count", 0)
    # Above its own field the message of the last one.
    with st.expander("Upload a model"):
        uploaded = st.file_uploader(
            f"An .onnx or .ort file of at most {format_bytes(limit)}", type=list(uploads.MODELS), key=f"upload {count}"
        )
        if error := st.session_state.pop("upload error", ""):
            st.error(error)
    if uploaded is None:
        return
    try:
        with st.spinner("Checking the file"):
            path = uploads.keep(space, uploaded, limit)
        own = st.session_state["uploads"] = [*st.session_state.get("uploads", []), path]
        for old in own[:-_KEPT]:
            old.unlink(missing_ok=True)
    except OnnxmemError as error:
        st.session_state["upload error"] = escape(f"{error}.") + (f"\n\n{escape(error.hint)}" if error.hint else "")
    st.session_state["upload count"] = count + 1
    uploads.give_back(uploaded)
    st.rerun()


def _from_zoo(space: Workspace, name: str) -> Path | None:
    from onnxmem.app.show import finished, show_error  # noqa: PLC0415

    path = space.folder / f"{name}.onnx"
    job = space.ask("zoo", name, "-o", str(path), "--force")
    if not finished(job, f"zoo {name}", f"Building {name}"):
        return None
    if not path.exists():
        show_error(job)
        return None
    return path


def choose_sizes(path: Path, estimate: Document | None) -> dict[str, int]:
    """Sliders for the free dimensions, as the first estimate found them."""
    key = f"sizes {path}"
    if estimate is not None:
        st.session_state[key] = dimensions(estimate)
    known = st.session_state.get(key)
    if known is None:
        st.caption("Reading the model …")
        return {}
    if not known:
        st.caption("All shapes of this model are fixed.")
    chosen = {}
    for each in known:
        size = st.slider(
            escape(each.label), each.first, each.last, each.value, each.step, key=f"{key} {each.name}",
            help=f"The model's own name for it: {escape(each.name)}",
        )  # fmt: skip
        if size != each.value:
            chosen[each.name] = size
    # One alone may contradict another's default: what is given is given for all.
    return {each.name: chosen.get(each.name, each.value) for each in known} if chosen else {}


def choose_mode() -> str:
    """How it is to be run."""
    mode: str = st.selectbox(
        "Mode", MODES, index=2, key="mode",
        help="stock: ONNX Runtime as it comes. tuned: with the settings that save memory. planned: inside a plan.",
    )  # fmt: skip
    return mode


def choose_budget() -> int | None:
    """The memory there is; None if nobody said."""
    text = st.text_input("Budget", key="budget", placeholder="512MiB", help="The memory the process may take.")
    if not text.strip():
        return None
    try:
        return parse_bytes(text) or None
    except UsageError as error:
        st.error(f"{escape(str(error))}: {escape(error.hint)}")
        return None
