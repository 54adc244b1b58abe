"""Release: what each step of letting a model go gives back, and why not more; and the same by hand, live."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from onnxmem.app.asking import last_asked, outcome
from onnxmem.app.choice import Choice
from onnxmem.app.jobs import Job
from onnxmem.app.live import Live
from onnxmem.app.show import show_chart, show_section
from onnxmem.app.workspace import Workspace
from onnxmem.report.render.to_markdown import escape
from onnxmem.report.report import Chart
from onnxmem.report.sections import section
from onnxmem.units import format_bytes

_POLL = 0.4
_LIVE = "live session"


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """The ladder when it is asked for; below it a session to play with."""
    st.header("Step by step", anchor=False)
    _ladder(space, choice)
    st.header("Unload and watch", anchor=False)
    st.markdown(
        "Load the model in a process of its own, run it, and end that process: all it took is the system's again. "
        "This is what `onnxmem.IsolatedSession` does."
    )
    _live(space, choice)


def _ladder(space: Workspace, choice: Choice) -> None:
    words = choice.words("release", "--mode", choice.mode)
    job = last_asked(space, words)
    if job is None or (job.ended and job.document is None):
        st.markdown(
            "What does closing the session give back, what trimming the heap, and what only the end of the process? "
            f"{escape(choice.name)} is loaded, run and let go {escape(choice.mode)}, in a fresh process."
        )
        if st.button("Release step by step", type="primary", key="release"):
            last_asked(space, words, words)
            st.rerun()
    document = outcome(job, "release", f"Releasing {choice.name}, {choice.mode}")
    if document is not None:
        found = section(document)
        # Folded away, so that the session below is not far.
        tables = tuple(replace(table, folded=True) for table in found.tables)
        show_section(replace(found, tables=tables), "release", heading=False)
        st.button("Release again", key="release again", on_click=lambda: _again(space, words))


def _again(space: Workspace, words: tuple[str, ...]) -> None:
    space.forget(*words)
    last_asked(space, words, words)


def _live(space: Workspace, choice: Choice) -> None:
    live = space.others.get(_LIVE)
    if not isinstance(live, Live) or (live.path, live.mode) != (choice.path, choice.mode):
        if live is not None:
            live.close()
        live = space.others[_LIVE] = Live(choice.path, choice.mode, space.folder)
    was_moving = live.moving

    @st.fragment(run_every=_POLL if was_moving else None)
    def watch() -> None:
        if live.moving != was_moving:
            # The page is drawn anew, so that it asks more often, or no longer.
            st.rerun()
        _buttons(live, choice)
        _picture(live)

    watch()


def _buttons(live: Live, choice: Choice) -> None:
    free = not live.busy
    with st.container(horizontal=True):
        st.button("Load", key="live load", type="primary", disabled=live.loaded or not free,
                  icon=":material/upload_file:", on_click=live.load, args=(choice.dims,))  # fmt: skip
        st.button("Run", key="live run", disabled=not (live.loaded and free),
                  icon=":material/play_arrow:", on_click=live.run, args=(choice.dims,))  # fmt: skip
        st.button("Trim", key="live trim", disabled=not (live.loaded and free),
                  icon=":material/content_cut:", on_click=live.trim,
                  help="Give back what was freed and the C library keeps for later.")  # fmt: skip
        st.button("Unload", key="live unload", disabled=not (live.loaded and free),
                  icon=":material/eject:", on_click=live.unload)  # fmt: skip
    if live.error:
        st.error(escape(f"{live.error}.") + (f"\n\n{escape(live.hint)}" if live.hint else ""))


def _picture(live: Live) -> None:
    now = live.rss
    doing = {"load": "loading", "run": "running", "trim": "trimming", "unload": "unloading"}
    state = doing.get(live.busy) or ("loaded" if live.loaded else "not loaded" if now is None else "unloaded")
    # Side by side on a telephone, too: then the line is still in sight.
    with st.container(horizontal=True, gap="large"):
        st.metric("Resident now", "—" if now is None else format_bytes(now), width="content")
        st.metric("At most so far", format_bytes(live.highest) if live.highest else "—", width="content")
        st.metric("The session is", state, width="content")
    document = live.document()
    if document["timeline"]:
        done = ", ".join(phase["name"] for phase in document["phases"])
        alt = f"Resident memory over time, while the session did this: {done}. Now {format_bytes(now or 0)}."
        show_chart(Chart("live", "Resident memory of its process", alt, document), "live")
