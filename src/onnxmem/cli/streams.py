"""stdin, stdout and stderr: there in any case, also if whoever started this has closed them or their disk is full."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import TextIO

_FULL = (errno.ENOSPC, errno.EDQUOT)


def open_closed() -> None:
    """Have those that are closed lead nowhere: Python has none then, and the next file to be opened would be in their
    place, for children, too."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  for as long as this process


def lead_nowhere(stream: TextIO) -> None:
    """What is still to be written is lost; Python would complain about that at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def leave_terminal() -> None:
    """It is gone, and whatever is written there now is an error. Files and pipes get what is said all the same."""
    for number in (1, 2):
        if stat.S_ISCHR(os.fstat(number).st_mode):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def is_full(error: Exception) -> bool:
    """Whether a disk is full. Those of files are asked for by whoever writes them: this is one of the output."""
    return isinstance(error, OSError) and error.errno in _FULL
