"""A verb in a process of its own, for whoever shows what it says and returns in another way than a terminal."""

from __future__ import annotations

import sys

from onnxmem.cli import main as run


def main(*words: str) -> None:
    """As if these words had been typed."""
    sys.argv = ["onnxmem", *words]
    run()
