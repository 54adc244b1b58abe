"""The places of all nodes of a Ray cluster, each with a worker: who is idle, who has answered, who is lost."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnxmem.documents import encode
from onnxmem.errors import OnnxmemError
from onnxmem.sweeping.cell import Stage
from onnxmem.sweeping.cluster_nodes import ray_sentence
from onnxmem.sweeping.engine import ANY, Job
from onnxmem.sweeping.node import Parts
from onnxmem.sweeping.outcome import CRASH, LOST, NO_MEMORY, TIME_LIMIT, Outcome, failure

if TYPE_CHECKING:
    from onnxmem.sweeping.cluster import Cluster

_TICK, _LOOK, _GRACE = 0.5, 3.0, 30.0
_STARTS, _PATIENCE = 20, 120.0
"""So many workers in a row that do not start, over so many seconds, or so long no node at all: then it gives up."""


@dataclass(eq=False)
class Slot:
    """A place on a node, and its worker."""

    node: str
    memory: int
    """What its cells may take."""
    worker: Any
    waiting: Any
    """What it was asked last."""
    processor: str = ""
    """Empty until it has said who it is."""
    job: Job | None = None
    until: float = 0.0

    def begin(self, job: Job, sent: Mapping[str, Parts], fetch: Callable[[Any], bytes]) -> None:
        """Give it a cell, and the files of that if they do not lie there."""
        self.job, self.until = job, time.monotonic() + job.cell.limit + _GRACE
        self.waiting = self.worker.work.remote(encode(job.cell), sent, fetch)


def next_job(queue: deque[Job], slot: Slot) -> Job | None:
    """The first job that has its processor and its memory at this place."""
    for job in queue:
        if job.processor in (ANY, slot.processor) and job.memory <= slot.memory:
            queue.remove(job)
            return job
    return None


class Slots:
    """The places of all nodes, whichever these are at the moment."""

    def __init__(self, cluster: Cluster, stage: Stage, parallel: int, needs: Sequence[int]) -> None:
        """`needs` are the bytes that cells will take."""
        self._cluster, self._ray, self._stage, self._parallel = cluster, cluster.ray, stage, parallel
        self._needs = needs
        self._slots: dict[tuple[str, int], Slot] = {}
        self._looked, self._seen = 0.0, time.monotonic()
        """When nodes were asked for, and when there was one."""
        self._failed_starts: list[float] = []
        """When workers did not start, since one did."""

    @property
    def busy(self) -> bool:
        return any(slot.job for slot in self._slots.values())

    @property
    def idle(self) -> list[Slot]:
        return [slot for slot in self._slots.values() if slot.processor and slot.job is None]

    @property
    def all_idle(self) -> bool:
        return bool(self._slots) and len(self.idle) == len(self._slots)

    def refresh(self) -> None:
        """Fill all places of the nodes that are alive."""
        if time.monotonic() - self._looked < _LOOK and self._slots:
            return
        self._looked = time.monotonic()
        nodes = self._cluster.nodes(self._stage)
        if nodes:
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > _PATIENCE:
            raise OnnxmemError("the cluster has no node left", hint="the same command goes on once it has")
        for node in nodes:
            memory = node.reserved(self._stage, self._parallel, self._needs)
            places = node.places(self._stage, self._parallel, memory)
            for place in range(places):
                if (node.id, place) not in self._slots:
                    worker = self._cluster.start(node, self._stage, place, places, memory)
                    asked = worker.greet.remote(self._stage.device)
                    self._slots[node.id, place] = Slot(node.id, memory, worker, asked)

    def outcomes(self) -> Iterator[tuple[Slot, Outcome]]:
        """Wait a little: those that have answered, are lost, or took too long."""
        asked = {slot.waiting: (key, slot) for key, slot in self._slots.items() if slot.waiting is not None}
        ready, _ = self._ray.wait(list(asked), num_returns=1, timeout=_TICK) if asked else ((), ())
        if not asked:
            time.sleep(_TICK)
        for answer in ready:
            key, slot = asked[answer]
            slot.waiting = None
            try:
                found = self._ray.get(answer)
            except Exception as error:
                del self._slots[key]
                # Soon, but not at once: a dead node is alive for a while.
                self._looked = time.monotonic() - _LOOK + _TICK
                if not self._slots:
                    time.sleep(_TICK)
                if slot.job is not None:
                    yield slot, self._lost(error)
                elif not self._gone(error) or self._hopeless():
                    raise OnnxmemError(
                        ray_sentence(error), hint="every node needs onnxmem, and a temporary folder"
                    ) from error
                continue
            if slot.job is None:
                slot.processor = self._cluster.checked(found).processor()
                self._failed_starts = []
            else:
                yield slot, Outcome.from_document(found)
        for key, slot in list(self._slots.items()):
            if slot.job is not None and time.monotonic() > slot.until:
                del self._slots[key]
                self._leave(slot.worker)
                yield slot, failure(TIME_LIMIT, f"it did not answer within {slot.job.cell.limit + _GRACE:g} s")

    def _hopeless(self) -> bool:
        """Whether no worker starts any more. Some may not, while a node is lost."""
        self._failed_starts.append(time.monotonic())
        return len(self._failed_starts) > _STARTS and self._failed_starts[-1] - self._failed_starts[0] > _PATIENCE

    def _gone(self, error: Exception) -> bool:
        """Whether it is Ray that says so, and not the work itself."""
        errors = self._ray.exceptions
        return isinstance(error, errors.RayError) and not isinstance(error, errors.RayTaskError)

    def _lost(self, error: Exception) -> Outcome:
        errors = self._ray.exceptions
        if isinstance(error, errors.OutOfMemoryError):
            return failure(NO_MEMORY, "the node ran out of memory, and Ray ended the worker")
        if self._gone(error):
            return failure(LOST, f"its worker or its node is gone: {ray_sentence(error)}")
        return failure(CRASH, ray_sentence(error))

    def end(self) -> None:
        for slot in self._slots.values():
            if slot.job is not None:  # it would not hear that it is to leave before it is done
                with suppress(Exception):
                    self._ray.kill(slot.worker)
            else:
                self._leave(slot.worker)

    def _leave(self, worker: Any) -> None:
        with suppress(Exception):
            self._ray.get(worker.leave.remote(), timeout=5)
        with suppress(Exception):
            self._ray.kill(worker)
