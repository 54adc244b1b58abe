"""Commands that are printed for somebody to paste: the words of which they are made."""

from __future__ import annotations

import os


def path_word(path: str | os.PathLike[str]) -> str:
    """A path as a word of a command; one that begins with a dash would be taken for an option."""
    text = os.fspath(path)
    return f"./{text}" if text.startswith("-") else text
