"""Where results and progress go: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

_PATIENCE = 2.0


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_text(renderable: Any) -> None:
    """A rich table or text on stdout: coloured on a terminal, plain elsewhere."""
    from rich.console import Console  # noqa: PLC0415

    # Names in models are text: "[/]" would end a style and ":smile:" become a picture if Rich were to read them.
    console = Console(highlight=False, markup=False, emoji=False)
    # Files and pipes have no width of their own: do not fold long names there.
    console.width = console.width if console.is_terminal else max(console.width, 100)
    if console.is_terminal:
        console.print(renderable)
        return
    with console.capture() as captured:
        console.print(renderable)
    # Tables fill their last column with blanks.
    typer.echo("\n".join(line.rstrip(" ") for line in captured.get().split("\n")), nl=False)


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Say on stderr what is going on, if it takes long: a spinner on a terminal, one plain line elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415

        with Console(stderr=True).status(f"{what} …"):
            yield
        return
    timer = threading.Timer(_PATIENCE, lambda: print(f"onnxmem: {what} …", file=sys.stderr))  # noqa: T201
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Say on stderr which step of long work is going on: a spinner on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty():
        yield lambda text: print(f"onnxmem: {what}: {text}", file=sys.stderr)  # noqa: T201
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Console(stderr=True).status(f"{what} …") as status:
        yield lambda text: status.update(Text(f"{what}: {text} …"))
