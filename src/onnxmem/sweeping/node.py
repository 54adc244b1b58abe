"""A worker on a node of a cluster: works out cells on cores of its own, with models that come over the network once."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxmem.documents import Document, Record, encode
from onnxmem.environment import read_environment
from onnxmem.history.entry import machine_name
from onnxmem.measurement.device import HOST
from onnxmem.sweeping.cell import Cell
from onnxmem.sweeping.outcome import FULL, REFUSED, failure
from onnxmem.sweeping.place import core_sets, gpu_name

# As folders.py names what is for the time being: what nobody holds locked any more, the next call removes.
_PREFIX = "onnxmem.tmp-sweep-"
_THREADS = "OMP_NUM_THREADS"

Parts = Mapping[str, Sequence[Any]]
"""Files by their names beside the first of them, each in parts, which `fetch` turns into bytes."""


@dataclass(frozen=True, kw_only=True)
class Greeting(Record):
    """Who a worker is."""

    host: str
    cpu: str
    cores: int
    onnxmem: str
    onnxruntime: str
    gpu: str = ""
    """That of the device that was asked for."""

    def processor(self, places: int = 1) -> str:
        """What cells meet there, if so many share its cores evenly."""
        return machine_name(self.cpu, self.cores // places, self.gpu)


def greet(device: str = HOST) -> dict[str, Any]:
    """Who this process is, on which cores, and with which GPU. An error if models cannot run on the device."""
    here = read_environment()
    names = ("cpu", "cores", "onnxmem", "onnxruntime")
    known = {name: getattr(here, name) for name in names}
    return Greeting(host=platform.node(), gpu=gpu_name(device), **known).document()


class Worker:
    """The cells of one place on a node; `place` of `parallel`, or one that shares all cores if that is None."""

    def __init__(self, sweep: str, place: int | None, parallel: int, threads: str | None) -> None:
        """`sweep` names the folder of models, `threads` is what the driver has for OMP_NUM_THREADS."""
        # Ray sets it for all that it starts, and measured processes would be others than elsewhere.
        os.environ.pop(_THREADS, None)
        if threads is not None:
            os.environ[_THREADS] = threads
        if place is not None:
            os.sched_setaffinity(0, core_sets(parallel)[place])
        self._folder = Path(tempfile.gettempdir()) / f"{_PREFIX}{sweep}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # Shared by all workers of this node: whoever comes last can tell, and whoever clears up leaves it alone.
        self._lock = os.open(self._folder, os.O_RDONLY)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def greet(self, device: str) -> dict[str, Any]:
        """Who it is."""
        return greet(device)

    def work(self, cell: Document, sent: Mapping[str, Parts], fetch: Callable[[Any], bytes]) -> Any:
        """The outcome of a cell. What was `sent`, by its hash, does not lie on this node; it is put here once."""
        from onnxmem.sweeping.work import work_out  # noqa: PLC0415  after the cores: libraries count them

        asked = Cell.from_document(cell)
        try:
            for sha256, parts in sent.items():
                folder = self._receive(sha256, parts, fetch)
                if sha256 == asked.sha256:
                    asked = replace(asked, model=folder / asked.model.name)
                elif asked.inputs is not None:
                    asked = replace(asked, inputs=folder / asked.inputs.name)
        except OSError as error:
            message = f"its files could not be put into '{self._folder}': {error.strerror}"
            return encode(failure(REFUSED, message, node=platform.node(), no_room=error.errno in FULL))
        return encode(work_out(asked))

    def _receive(self, sha256: str, parts: Parts, fetch: Callable[[Any], bytes]) -> Path:
        """The folder where these files lie on this node; they get there once, whichever worker needs them first."""
        folder = self._folder / sha256
        with (self._folder / f"{sha256}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                partial = folder.with_suffix(".partial")
                shutil.rmtree(partial, ignore_errors=True)
                for name, pieces in parts.items():
                    path = partial / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("wb") as file:
                        for piece in pieces:
                            file.write(fetch(piece))
                partial.rename(folder)
        return folder

    def leave(self) -> None:
        """Remove the models of this node, if no other worker has them."""
        with suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self._folder, ignore_errors=True)
