"""Where what was found out is kept for later processes. By itself: sessions do without `pathlib`, which is large."""

from __future__ import annotations

import os


def user_cache() -> str:
    """The folder in which this user's programs keep what they could find out again; it may not exist."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "onnxmem")  # noqa: PTH118, PTH111
