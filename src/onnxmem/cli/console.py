"""What goes on while a verb works, on stderr: a bar that vanishes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from onnxmem.cli.streams import lead_nowhere
from onnxmem.errors import readable
from onnxmem.progress import OnProgress, Progress
from onnxmem.units import format_bytes

_PATIENCE = 2.0


def tell(text: str, hint: str = "") -> None:
    """One line on stderr, and one more for what to do about it."""
    # Both may have names from files in them, which could say something else to a terminal.
    lines = f"onnxmem: {readable(text)}", *([f"hint: {readable(hint)}"] if hint else [])
    try:
        print(*lines, sep="\n", file=sys.stderr, flush=True)  # noqa: T201
    except OSError:  # there is nobody to tell, which is no reason to end the work
        lead_nowhere(sys.stderr)


@contextmanager
def progress(what: str) -> Iterator[OnProgress]:
    """Show that work is going on: yields what to call with each stage of it.

    Work without stages is mentioned only if it takes long.
    """
    with _bar(what) if sys.stderr.isatty() else _lines(what) as step:
        yield step


@contextmanager
def _bar(what: str) -> Iterator[OnProgress]:
    from rich import progress as rich  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    # Names in models are text: "[/]" would end a style if Rich were to read them.
    # Where there is little room it is the words that are cut, not what is counted.
    room = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    text = rich.TextColumn("{task.description}", markup=False, table_column=room)
    amount = rich.TextColumn("{task.fields[amount]}", markup=False, table_column=Column(no_wrap=True))
    columns = (text, rich.BarColumn(bar_width=12), amount, rich.TimeElapsedColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bar:
        task = bar.add_task(readable(f"{what} …"), total=None, amount="")

        def step(now: Progress) -> None:
            description, total = readable(f"{what}: {now.stage} …"), now.total or None
            bar.update(task, description=description, completed=now.done, total=total, amount=_amount(now))

        yield step


@contextmanager
def _lines(what: str) -> Iterator[OnProgress]:
    patience = threading.Timer(_PATIENCE, tell, [f"{what} …"])
    patience.daemon = True
    last = ""

    def step(now: Progress) -> None:
        nonlocal last
        patience.cancel()
        if now.stage != last:
            last = now.stage
            size = f" {format_bytes(now.total)}" if now.total and now.unit == "bytes" else ""
            tell(f"{what}: {now.stage}{size} …")

    patience.start()
    try:
        yield step
    finally:
        patience.cancel()


def _amount(now: Progress) -> str:
    if not now.total:
        return ""
    write = format_bytes if now.unit == "bytes" else str
    return f"{write(now.done)} of {write(now.total)}"
