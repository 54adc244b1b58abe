"""A bar with bytes on a terminal, and a plain line for each stage elsewhere; always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onnxmem.units import format_bytes

Progress = Callable[[str, int, int], None]


@contextmanager
def byte_progress() -> Iterator[Progress]:
    """Something to tell what is done: `progress(stage, done, total)`, with a total of 0 where nobody knows it."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich import progress as rich  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.DownloadColumn(binary_units=True),
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        current: dict[str, rich.TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in current:
                for task in current.values():
                    bars.update(task, visible=False)
                current[stage] = bars.add_task(stage, total=total or None)
            bars.update(current[stage], completed=done, total=total or None)

        yield show


def _lines() -> Progress:
    said: set[str] = set()

    def say(stage: str, _: int, total: int) -> None:
        if stage not in said:
            said.add(stage)
            size = f" {format_bytes(total)}" if total else ""
            print(f"onnxmem: {stage}{size} …", file=sys.stderr)  # noqa: T201

    return say
