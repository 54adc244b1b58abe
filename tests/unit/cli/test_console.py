"""What is said on stderr is text, whatever names are in it."""

from __future__ import annotations

import io
import sys

import pytest

from onnxmem.cli.console import progress, tell
from onnxmem.progress import Progress

NAME = "\x1b]0;mine\x07\u202egnp.\r\nonnxmem: all is well"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_name_ends_no_line_and_tells_a_terminal_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    tell(f"no '{NAME}'", f"look at '{NAME}'")
    with progress("reading") as step:
        step(Progress(NAME))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(line.isprintable() for line in lines)


def test_a_bar_tells_a_terminal_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    with progress(NAME) as step:
        step(Progress(NAME))
    assert "gnp" in shown.getvalue() and not {"\u202e", "\x07"} & set(shown.getvalue())
