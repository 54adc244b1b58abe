"""What goes on while a verb works, on stderr: a bar that vanishes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from onnxmem.units import format_bytes

_PATIENCE = 2.0


class Step(Protocol):
    """Called with what is being done, and how many bytes of how many are (0 where nobody knows)."""

    def __call__(self, text: str, done: int = 0, total: int = 0) -> None: ...


def tell(text: str, hint: str = "") -> None:
    """One line on stderr, and one more for what to do about it."""
    print(f"onnxmem: {text}", file=sys.stderr, flush=True)  # noqa: T201
    if hint:
        print(f"hint: {hint}", file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def progress(what: str) -> Iterator[Step]:
    """Show that work is going on: yields a function to call with each step of it.

    Work without steps is mentioned only if it takes long.
    """
    with _bar(what) if sys.stderr.isatty() else _lines(what) as step:
        yield step


@contextmanager
def _bar(what: str) -> Iterator[Step]:
    from rich import progress as rich  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    # Names in models are text: "[/]" would end a style if Rich were to read them.
    text = rich.TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    amount = rich.TextColumn("{task.fields[amount]}", markup=False, table_column=Column(no_wrap=True))
    columns = (text, rich.BarColumn(bar_width=16), amount, rich.TimeElapsedColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{what} …", total=None, amount="")

        def step(text: str, done: int = 0, total: int = 0) -> None:
            amount = f"{format_bytes(done)} of {format_bytes(total)}" if total else ""
            bar.update(task, description=f"{what}: {text} …", completed=done, total=total or None, amount=amount)

        yield step


@contextmanager
def _lines(what: str) -> Iterator[Step]:
    patience = threading.Timer(_PATIENCE, tell, [f"{what} …"])
    patience.daemon = True
    last = ""

    def step(text: str, _: int = 0, total: int = 0) -> None:
        nonlocal last
        patience.cancel()
        if text != last:
            last = text
            tell(f"{what}: {text}{f' {format_bytes(total)}' if total else ''} …")

    patience.start()
    try:
        yield step
    finally:
        patience.cancel()
