"""Commands in the process of the tests: to start another one takes a second, and is seldom what a test is about."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess

import pytest

from onnxmem.cli import main


def typed(*arguments: object, columns: int | None = None) -> CompletedProcess[str]:
    """A command as it is typed after `onnxmem`, and what came of it."""
    buffers = [io.BytesIO(), io.BytesIO()]
    out, err = (io.TextIOWrapper(buffer, encoding="utf-8", write_through=True) for buffer in buffers)
    command = ["onnxmem", *map(str, arguments)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", command)
        if columns is not None:
            patch.setenv("COLUMNS", str(columns))
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stopped:
            main()
    code, written = stopped.value.code, (buffer.getvalue().decode() for buffer in buffers)
    return CompletedProcess(command, code if isinstance(code, int) else 0, *written)
