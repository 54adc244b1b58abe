"""Which commit is this? Asked of git, where there is one."""

from __future__ import annotations

import subprocess
from pathlib import Path

_PATIENCE = 10.0


def read_commit(folder: Path | None = None) -> str | None:
    """The commit that is checked out in this folder, with `-dirty` if files were changed; None if nobody can tell."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
