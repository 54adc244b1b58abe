"""What went wrong as annotations of a GitHub workflow: lines that its runner picks out of the log."""

from __future__ import annotations

import os
from pathlib import Path

from onnxmem.checking.checked import OK, Checked
from onnxmem.checking.checking import Checking

_TITLES = {"exceeded": "over its memory budget", "grown": "takes more memory than before", "failed": "was not checked"}


def to_annotations(checking: Checking) -> list[str]:
    """A line for each check that is not as it should be."""
    return [_line(each) for each in checking.checks if each.verdict != OK]


def _line(checked: Checked) -> str:
    title = f"{checked.title} {_TITLES[checked.verdict]}"
    text = "\n".join(part for part in (checked.sentence, checked.hint) if part)
    place = _property(_path(checked.case.scenario.model))
    return f"::error file={place},title={_property(title)}::{_data(text)}"


def _path(model: Path) -> str:
    """As GitHub shows it: seen from the checkout."""
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    whole = model.resolve()
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else str(model)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
