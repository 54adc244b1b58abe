"""History: earlier results, of this page, from files and from `check --history`; side by side, and as a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import streamlit as st

from onnxmem.app.asking import last_asked, outcome
from onnxmem.app.choice import Choice
from onnxmem.app.jobs import Document, Job
from onnxmem.app.settings import current
from onnxmem.app.show import show_section
from onnxmem.app.workspace import Workspace
from onnxmem.errors import OnnxmemError
from onnxmem.history.figures import FIGURES
from onnxmem.report.build import make_report, read_report
from onnxmem.report.cells import words
from onnxmem.report.render.to_json import render_json
from onnxmem.report.render.to_markdown import escape
from onnxmem.report.report import Section
from onnxmem.report.sections import section

_VERBS = ("plan", "measure", "explain", "release", "share", "compare", "fit", "check")
_COMPARED = ("onnxmem.measure/1", "onnxmem.estimate/1")


def show(space: Workspace, choice: Choice, estimate: Job) -> None:
    """Choose one or two and look; take them along as a page or as JSON."""
    entries = _entries(space)
    if entries:
        _look(space, entries)
    else:
        st.markdown("Nothing has been measured yet: results of the other tabs appear here, and those of files that "
                    "the dashboard was started with: `onnxmem app RESULT.json …`")  # fmt: skip
    if (file := current().history) is not None:
        _history(space, file)
    elif not entries:
        st.markdown("With `onnxmem app --history FILE.sqlite` it shows what `onnxmem check --history` has written.")


def _entries(space: Workspace) -> dict[str, Document]:
    """All there are, the newest last, by names that differ."""
    found: list[tuple[str, Document]] = []
    for path in current().results:
        try:
            found += [(f"{path.name}: ", document) for document in _read(path, path.stat().st_mtime_ns)]
        except (OnnxmemError, OSError) as error:
            st.warning(escape(f"{error}."))
    # Whoever drags a slider leaves many estimates behind: the last of each model is enough.
    last = {str(document["model"]): document for document in space.results("estimate")}
    found += [("", document) for document in (*last.values(), *space.results(*_VERBS))]
    entries: dict[str, Document] = {}
    for where, document in found:
        label, same = f"{where}{_label(document)}", 1
        while (name := f"{label} ({same})" if same > 1 else label) in entries:
            same += 1
        entries[name] = document
    return entries


@lru_cache(maxsize=32)
def _read(path: Path, _state: int) -> tuple[Document, ...]:
    return read_report([path]).documents


def _label(document: Document) -> str:
    """The verb, the model, the mode and when."""
    verb = str(document["schema"]).removeprefix("onnxmem.").partition("/")[0]
    scenario = document.get("scenario") or {}
    models = document.get("model") or ", ".join(words(each["name"], 30) for each in document.get("candidates") or ())
    when = words(str(document.get("date") or "")[:16].replace("T", " "), 16)
    parts = (verb, words(models, 60), words(scenario.get("mode") or "", 30), when)
    return " · ".join(part for part in parts if part)


def _look(space: Workspace, entries: dict[str, Document]) -> None:
    names = list(entries)
    measured = [name for name in names if entries[name]["schema"] == _COMPARED[0]]
    usual = (measured or names)[-2:]
    chosen = st.multiselect("Results", names, default=usual, key=f"history results {len(names)}",
                            help="One is shown in full, two or more side by side.")  # fmt: skip
    documents = [entries[name] for name in chosen]
    if not documents:
        st.markdown("Choose a result to look at.")
        return
    _export(space, documents)
    report = make_report(documents)
    if len(documents) > 1:
        compared = [each for each in report.sections if each.source is None]
        for each in compared:
            show_section(each, "history together")
        if not compared:
            st.info(_why_not(documents))
    _each(chosen, [each for each in report.sections if each.source is not None])


def _each(names: Sequence[str], sections: Sequence[Section]) -> None:
    if len(sections) == 1:
        show_section(sections[0], "history 0")
        return
    for number, (name, each) in enumerate(zip(names, sections, strict=True)):
        with st.expander(escape(name), expanded=False):
            show_section(each, f"history {number}")


def _why_not(documents: Sequence[Document]) -> str:
    kinds = dict.fromkeys(str(document["schema"]).removeprefix("onnxmem.").partition("/")[0] for document in documents)
    if all(document["schema"] in _COMPARED for document in documents):
        return "These are not drawn on one scale: there must be a measurement among them, and of the same model."
    return f"These are not drawn on one scale: only measurements are, and these are {escape(', '.join(kinds))}."


def _export(space: Workspace, documents: Sequence[Document]) -> None:
    """As a page that needs nothing else, which a child makes; and as JSON."""
    files = [_saved(space, document) for document in documents]
    page = space.folder / f"report-{'-'.join(file.stem for file in files)[:150]}.html"
    job: Job | None = None
    asked = ("report", *map(str, files), "-o", str(page))
    with st.container(horizontal=True):
        # Its name says what is in it: once it is there, it is the right one.
        if page.exists():
            st.download_button("Download HTML", page.read_bytes(), "onnxmem.html", "text/html", key="history html",
                               type="primary", icon=":material/download:", on_click="ignore")  # fmt: skip
        else:
            pressed = st.button("Make the HTML report", key="history report", icon=":material/description:")
            job = last_asked(space, asked, asked if pressed else None)
        whole = json.dumps(documents[0], indent=1) if len(documents) == 1 else render_json(make_report(documents))
        st.download_button("Download JSON", whole, "onnxmem.json", "application/json", key="history json",
                           icon=":material/download:", on_click="ignore")  # fmt: skip
    if not page.exists():
        outcome(job, "history report", "Writing the report")


def _saved(space: Workspace, document: Document) -> Path:
    """A file of it, for the verb that reads files."""
    text = json.dumps(document)
    path = space.folder / f"result-{abs(hash(text)):x}.json"
    if not path.exists():
        path.write_text(text)
    return path


def _history(space: Workspace, file: Path) -> None:
    st.header("Over time", anchor=False)
    labels = {figure.name: figure.label for figure in FIGURES}
    figure = st.selectbox("Figure", list(labels), key="history figure", format_func=labels.__getitem__)
    job = space.ask("history", str(file), "--figure", figure)
    document = outcome(job, "history", "Reading the history")
    if document is not None:
        show_section(section(document), "history")
