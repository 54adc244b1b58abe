"""Files that come through the browser: checked, kept in the tab's own folder, and gone with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem.app.workspace import Workspace
from onnxmem.documents import Record
from onnxmem.errors import ModelError, UsageError
from onnxmem.process.child import run_child, serve
from onnxmem.session.trim import trim
from onnxmem.units import format_bytes

MODELS = ("onnx", "ort")
_TIME, _MEMORY = 30.0, 2 * 2**30
_LONGEST = 60
"""Of a name, in characters: file systems count bytes, of which a character has up to four."""
_ODD = re.compile(r"[^\w.\- ]+")


@dataclass(frozen=True, kw_only=True)
class Task(Record):
    """A file to look at."""

    path: str


@dataclass(frozen=True, kw_only=True)
class Checked(Record):
    """It may be kept."""


def keep(space: Workspace, uploaded: Any, limit: int, kinds: Sequence[str] = MODELS) -> Path:
    """Write an upload into the tab's folder: where it is. Raises an error in one sentence for what may not stay.

    Its name must end in one of the `kinds`. A model is looked at; a picture is, where it is used.
    """
    if uploaded.size > limit:
        raise UsageError(
            f"'{uploaded.name}' is larger than {format_bytes(limit)}",
            hint="start the dashboard with its path instead: onnxmem app MODEL.onnx",
        )
    name = _ODD.sub("_", Path(uploaded.name).name)[-_LONGEST:].lstrip(".") or "upload"
    # Alone in its folder: whatever it refers to beside itself is not there.
    folder = space.folder / f"upload-{sum(1 for _ in space.folder.iterdir())}"
    folder.mkdir(mode=0o700)
    path = folder / name
    path.write_bytes(uploaded.getbuffer())
    try:
        if path.suffix.lower().removeprefix(".") not in kinds:
            what = "model" if kinds is MODELS else "picture"
            raise UsageError(f"'{name}' is no {what}", hint=f"{what}s end in .{' or .'.join(kinds)}")
        if kinds is MODELS:
            _check(path)
    except Exception:
        path.unlink()
        raise
    return path


def give_back(uploaded: Any) -> None:
    """The server lets go of its own copy, which it would keep as long as the tab is open."""
    from streamlit import runtime  # noqa: PLC0415
    from streamlit.runtime.scriptrunner import get_script_run_ctx  # noqa: PLC0415

    context = get_script_run_ctx()
    if context is not None and runtime.exists():
        manager: Any = runtime.get_instance().uploaded_file_mgr
        manager.remove_file(context.session_id, uploaded.file_id)
    uploaded.close()
    trim()


def _check(path: Path) -> None:
    """In a process of its own: nobody knows what is in the file."""
    ended = run_child(__name__, Task(path=str(path)), timeout=_TIME)
    if ended.timed_out:
        raise ModelError(f"'{path.name}' could not be read within {_TIME:.0f} seconds")
    if ended.code != 0:
        raise ModelError(ended.last_line.replace(str(path.parent) + "/", ""))


def _look(task: Task) -> Checked:
    from onnxmem.measurement.signature import read_signature  # noqa: PLC0415
    from onnxmem.model.load import all_tensors, parse_proto  # noqa: PLC0415

    path = Path(task.path)
    if path.suffix.lower() == ".ort":
        read_signature(path)
    elif any(tensor.external_data for tensor in all_tensors(parse_proto(path))):
        raise ModelError(
            f"'{path.name}' keeps weights in other files, which an upload does not bring",
            hint="start the dashboard with its path instead: onnxmem app MODEL.onnx",
        )
    return Checked()


def _look_within(task: Task) -> Checked:
    """Nor may it take the memory that others on this machine need."""
    import resource  # noqa: PLC0415  only this child wants it

    most = _MEMORY + 3 * Path(task.path).stat().st_size
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        return _look(task)
    except MemoryError as error:
        raise ModelError(f"'{Path(task.path).name}' takes more than {format_bytes(most)} to be read") from error


def main() -> None:
    """The child's."""
    serve(Task, _look_within)
