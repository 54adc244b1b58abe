"""Try it: a picture made clearer by PyTorch, by ONNX Runtime and inside a plan; what each of them takes."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import streamlit as st

from onnxmem.app import uploads
from onnxmem.app.asking import last_asked, outcome
from onnxmem.app.choice import Choice
from onnxmem.app.jobs import Document, Job
from onnxmem.app.pictures import FACTORY, FORMATS, PYTORCH, Enhanced, Task, enhance
from onnxmem.app.scenes import SCENES
from onnxmem.app.settings import current
from onnxmem.app.show import finished, show_error, show_section
from onnxmem.app.workspace import Workspace
from onnxmem.errors import OnnxmemError, missing_extra
from onnxmem.report.render.to_markdown import escape
from onnxmem.report.sections import section
from onnxmem.units import format_bytes, format_seconds

_LARGEST = 20 * 2**20
_PLACE = ("try it",)
# Once, and again where that decides nothing.
_RUNS, _ONCE = "3", "1"


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """Pick a picture; see it before and after, and what each way of running the network takes."""
    runners = _runners()
    st.markdown(
        "An example network, `onnxmem zoo enhancer`: a small U-Net that takes haze, colour casts and noise out of "
        f"pictures. It runs as ONNX Runtime comes (stock) and inside a plan{', and as PyTorch' * (PYTORCH in runners)}."
    )
    if PYTORCH not in runners:
        st.caption(f"To see PyTorch beside them: {escape(missing_extra('torch', 'torch').hint)}")
    model = space.folder / "enhancer.onnx"
    made = space.ask("zoo", "enhancer", "-o", str(model), "--force")
    task = _ask(space, runners, model, ready=made.ended and model.exists())
    if not finished(made, "try it model", "Building the network"):
        return
    if not model.exists():
        show_error(made)
        return
    if task is not None:
        _enhance(space, task)
    done = st.session_state.get("enhanced")
    if done is None:
        return
    job = last_asked(space, _PLACE)
    pictures = st.container()
    document = outcome(job, "try it", "Measuring what each of them takes")
    with pictures:
        _pictures(done, document)
    if document is not None:
        st.caption("One process or two each: small differences are noise.")
        found = section(document)
        show_section(replace(found, facts=()), "try it", heading=False)


def _runners() -> tuple[str, ...]:
    """Whether there is PyTorch is found out without loading it."""
    return ("stock", "planned", *([PYTORCH] if importlib.util.find_spec("torch") else []))


def _ask(space: Workspace, runners: tuple[str, ...], model: Path, *, ready: bool) -> Task | None:
    """What to do, at the moment that the button is pressed."""
    own: dict[str, str] = st.session_state.setdefault("pictures", {})
    _take_upload(space, own)
    names = [*own, *SCENES]
    left, right = st.columns(2)
    # Another list is another field: it begins with the last upload.
    name = left.selectbox("Picture", names, key=f"picture {len(own)}")
    side = right.slider("Longest side, in pixels", 128, 768, 384, 64, key="picture side")
    icon = ":material/auto_fix_high:"
    if not st.button("Enhance", type="primary", key="enhance", icon=icon, disabled=not ready):
        return None
    return Task(picture=own.get(name, name), side=side, model=str(model), runners=runners, folder="")


def _take_upload(space: Workspace, own: dict[str, str]) -> None:
    limit, count = min(current().upload_limit, _LARGEST), st.session_state.setdefault("picture count", 0)
    with st.expander("Upload a picture"):
        uploaded = st.file_uploader(
            f"A PNG or JPEG of at most {format_bytes(limit)}", type=list(FORMATS), key=f"picture upload {count}"
        )
        if error := st.session_state.pop("picture error", ""):
            st.error(error)
    if uploaded is None:
        return
    try:
        path = uploads.keep(space, uploaded, limit, FORMATS)
        st.session_state["pictures"] = {path.name: str(path), **own}
    except OnnxmemError as error:
        st.session_state["picture error"] = escape(f"{error}.")
    st.session_state["picture count"] = count + 1
    uploads.give_back(uploaded)
    st.rerun()


def _enhance(space: Workspace, task: Task) -> None:
    folder = space.folder / f"picture-{sum(1 for _ in space.folder.iterdir())}"
    folder.mkdir(mode=0o700)
    st.session_state["enhanced"] = None
    try:
        with st.spinner("Enhancing the picture"):
            done = enhance(replace(task, folder=str(folder)))
    except OnnxmemError as error:
        st.error(escape(f"{error}."))
        return
    st.session_state["enhanced"] = done
    last_asked(space, _PLACE, _comparison(task, done))


def _comparison(task: Task, done: Enhanced) -> tuple[str, ...]:
    """The command line that measures all of them on this picture."""
    modes = [mode for mode in task.runners if mode != PYTORCH]
    candidates = [task.model if mode == "stock" else f"{task.model}+{mode}" for mode in modes]
    torch = (FACTORY, "--weights", done.weights) if done.weights else ()
    return ("compare", *candidates, *torch, "--inputs", done.feeds, "--runs", _RUNS, "--repeat", _ONCE,
            "--no-advice")  # fmt: skip


def _pictures(done: Enhanced, document: Document | None) -> None:
    """Before, and after by each of them, with what that took."""
    places = st.columns(1 + len(done.after))
    places[0].image(done.before, caption="Before")
    measured = {_runner(each): each for each in (document or {}).get("candidates", ()) if each.get("inputs")}
    for place, (runner, path) in zip(places[1:], done.after.items(), strict=True):
        place.image(path, caption=f"After, {runner}")
        point = measured[runner]["inputs"][-1] if runner in measured else {}
        peak, seconds = point.get("peak_rss_bytes"), point.get("latency_seconds")
        place.metric(f"Peak memory, {runner}", format_bytes(peak) if peak is not None else "…")
        place.metric(f"Time of a run, {runner}", format_seconds(seconds) if seconds is not None else "…")


def _runner(candidate: Document) -> str:
    name = str(candidate["name"])
    return PYTORCH if ":" in name else name.partition("+")[2] or "stock"
