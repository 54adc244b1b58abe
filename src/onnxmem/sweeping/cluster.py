"""Cells on a Ray cluster: workers that have their cores to themselves, on every node; those that are lost are replaced.

The only file that knows Ray. Workers are actors that ask for as many processors as their cells have cores, so that
neither other cells nor other users of the cluster run there meanwhile.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from onnxmem.documents import encode
from onnxmem.environment import available_cores, package_version
from onnxmem.errors import OnnxmemError, RuntimeUnsupported, UsageError, check_extra
from onnxmem.sweeping.cell import Cell
from onnxmem.sweeping.engine import ANY, Answers, Job, OnStart
from onnxmem.sweeping.node import Greeting, Worker, greet
from onnxmem.sweeping.outcome import CRASH, LOST, NO_MEMORY, TIME_LIMIT, Outcome, failure

_TICK, _LOOK, _GRACE = 0.5, 3.0, 30.0
_PIECE = 64 * 2**20
"""Models travel in pieces of so many bytes."""


class Cluster:
    """A Ray cluster at an address, or one that is started on this machine and ends with it."""

    name = "ray"

    def __init__(self, address: str | None = None, parallel: int = 1, retries: int = 0) -> None:
        check_extra("cluster")
        # Nothing of a sweep is anyone else's business.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Ray gives way to all others unless it is told not to: what is measured here would be slower than elsewhere.
        os.environ.setdefault("RAY_worker_niceness", "0")
        import ray  # noqa: PLC0415

        if parallel < 1:
            raise UsageError(f"{parallel} measurements at a time are none")
        if address is not None:
            _knock(address)
        self._ray, self._parallel, self._retries = ray, parallel, retries
        self._sweep, self._remote = uuid.uuid4().hex[:12], (address or "").startswith("ray://")
        here: dict[str, Any] = {
            "num_cpus": available_cores(),
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
        }
        try:
            ray.init(
                **({"address": address} if address else here),
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise _no_answer(address, str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._ray.shutdown()

    @property
    def workers(self) -> Mapping[bool, int]:
        nodes = self._nodes()
        return {False: sum(nodes.values()), True: sum(self._places(cpus, True) for cpus in nodes.values())}

    def processors(self, runs: bool) -> Sequence[str]:
        nodes = self._nodes()
        names = (told.processor(self._places(nodes[node], True) if runs else 1) for node, told in self._told.items())
        return tuple(dict.fromkeys(names))

    def _nodes(self) -> dict[str, int]:
        """The nodes that are alive, and how many processors each has."""
        nodes = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]}
        return {node: cpus for node, cpus in nodes.items() if cpus}

    def _places(self, cpus: int, runs: bool) -> int:
        return min(self._parallel, cpus) if runs else cpus

    @cached_property
    def _told(self) -> dict[str, Greeting]:
        """Who the nodes are. Asked in a task, for which Ray has processes at hand, and not in workers."""
        ask = self._ray.remote(greet)
        asked = {node: ask.options(num_cpus=0, scheduling_strategy=_on(node)).remote() for node in self._nodes()}
        try:
            return {node: self._checked(self._ray.get(answer)) for node, answer in asked.items()}
        except self._ray.exceptions.RayError as error:
            raise OnnxmemError(f"a node cannot work: {_sentence(error)}", hint="every node needs onnxmem") from error

    def _checked(self, document: Any) -> Greeting:
        """Is it one whose results are of the versions that this process writes down?"""
        told = Greeting.from_document(document)
        for name in ("onnxmem", "onnxruntime"):
            here, there = package_version(name), getattr(told, name)
            if here != there:
                raise RuntimeUnsupported(
                    f"the node '{told.host}' has {name} {there}, and here it is {here}",
                    hint=f"pip install {name}=={here}",
                )
        return told

    def _start(self, node: str, place: int | None, places: int, cpus: float) -> Any:
        """A worker on a node: at one of its places, with cores of its own, or anywhere if that is None."""
        actor = self._ray.remote(Worker).options(num_cpus=cpus, scheduling_strategy=_on(node), max_restarts=0)
        return actor.remote(self._sweep, place, places, os.environ.get("OMP_NUM_THREADS"))

    def _end(self, worker: Any) -> None:
        with suppress(Exception):
            self._ray.get(worker.leave.remote(), timeout=5)
        with suppress(Exception):
            self._ray.kill(worker)

    def run(self, jobs: Sequence[Job], runs: bool, on_start: OnStart) -> Answers:
        queue, slots = deque(jobs), _Slots(self, runs)
        models = _Models(self, jobs)
        try:
            while queue or slots.busy:
                slots.refresh()
                for slot in slots.idle:
                    job = _next(queue, slot.processor)
                    if job is not None:
                        on_start(job)
                        slot.begin(job, models)
                if queue and not slots.busy and slots.all_idle:
                    missing = ", ".join(dict.fromkeys(job.processor for job in queue))
                    raise OnnxmemError(
                        f"no node has the processor of {len(queue)} cells any more: {missing}",
                        hint="the same command goes on once one has",
                    )
                for slot, outcome in list(slots.outcomes()):
                    job, slot.job = slot.job, None
                    assert job is not None
                    if outcome.lost and job.tries <= self._retries:
                        queue.append(replace(job, tries=job.tries + 1))
                    else:
                        models.done(job.cell)
                        yield job, replace(outcome, tries=job.tries)
        finally:
            slots.end()

    def local(self, node: str) -> bool:
        """Whether this process runs on that node, and so has the same files."""
        return not self._remote and node == self._ray.get_runtime_context().get_node_id()


def _knock(address: str) -> None:
    """Does anyone listen there? Ray would try for minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator:  # "auto", which Ray knows itself
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _LOOK).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_answer(address, str(error)) from error


def _no_answer(address: str | None, why: str) -> OnnxmemError:
    said = " ".join(why.split())[:200]
    if address is None:
        return OnnxmemError(f"Ray does not start: {said}")
    return OnnxmemError(f"no Ray cluster answers at '{address}': {said}", hint="ray start --head starts one")


def _on(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


def _next(queue: deque[Job], processor: str) -> Job | None:
    """The first job that this processor may work out."""
    for job in queue:
        if job.processor in (ANY, processor):
            queue.remove(job)
            return job
    return None


class _Models:
    """Models on their way: each is put into the cluster once, and let go of after its last cell."""

    def __init__(self, cluster: Cluster, jobs: Iterable[Job]) -> None:
        self._cluster, self._left = cluster, Counter(job.cell.sha256 for job in jobs)
        self._parts: dict[str, dict[str, list[Any]]] = {}

    def parts(self, cell: Cell) -> dict[str, list[Any]]:
        if cell.sha256 not in self._parts:
            beside = cell.model.parent
            self._parts[cell.sha256] = {
                os.path.relpath(file, beside): [self._cluster._ray.put(piece) for piece in _pieces(file)]
                for file in cell.files
            }
        return self._parts[cell.sha256]

    def done(self, cell: Cell) -> None:
        self._left[cell.sha256] -= 1
        if not self._left[cell.sha256]:
            self._parts.pop(cell.sha256, None)


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as content:
        while piece := content.read(_PIECE):
            yield piece


@dataclass(eq=False)
class _Slot:
    """A place on a node, and its worker."""

    cluster: Cluster
    node: str
    worker: Any
    waiting: Any
    """What it was asked last."""
    processor: str = ""
    """Empty until it has said who it is."""
    job: Job | None = None
    until: float = 0.0

    def begin(self, job: Job, models: _Models) -> None:
        parts = None if self.cluster.local(self.node) else models.parts(job.cell)
        self.job, self.until = job, time.monotonic() + job.cell.limit + _GRACE
        self.waiting = self.worker.work.remote(encode(job.cell), parts, self.cluster._ray.get)


class _Slots:
    """The places of all nodes, whichever these are at the moment."""

    def __init__(self, cluster: Cluster, runs: bool) -> None:
        self._cluster, self._ray, self._runs = cluster, cluster._ray, runs
        self._slots: dict[tuple[str, int], _Slot] = {}
        self._looked = 0.0

    @property
    def busy(self) -> bool:
        return any(slot.job for slot in self._slots.values())

    @property
    def idle(self) -> list[_Slot]:
        return [slot for slot in self._slots.values() if slot.processor and slot.job is None]

    @property
    def all_idle(self) -> bool:
        return len(self.idle) == len(self._slots)

    def refresh(self) -> None:
        """Fill all places of the nodes that are alive."""
        if time.monotonic() - self._looked < _LOOK and self._slots:
            return
        self._looked = time.monotonic()
        nodes = self._cluster._nodes()
        if not nodes:
            raise OnnxmemError("the cluster has no node left", hint="the same command goes on once it has")
        for node, cpus in nodes.items():
            places = self._cluster._places(cpus, self._runs)
            for place in range(places):
                if (node, place) not in self._slots:
                    worker = self._cluster._start(node, place if self._runs else None, places, cpus / places)
                    self._slots[node, place] = _Slot(self._cluster, node, worker, worker.greet.remote())

    def outcomes(self) -> Iterator[tuple[_Slot, Outcome]]:
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
                self._looked = (
                    time.monotonic() - _LOOK + _TICK
                )  # soon, but not at once: a dead node is alive for a while
                if slot.job is not None:
                    yield slot, self._lost(error)
                elif not isinstance(error, self._ray.exceptions.RayActorError):
                    raise OnnxmemError(
                        _sentence(error), hint="every node needs onnxmem, and a temporary folder"
                    ) from error
                continue
            if slot.job is None:
                slot.processor = self._cluster._checked(found).processor()
            else:
                yield slot, Outcome.from_document(found)
        for key, slot in list(self._slots.items()):
            if slot.job is not None and time.monotonic() > slot.until:
                del self._slots[key]
                self._cluster._end(slot.worker)
                yield slot, failure(TIME_LIMIT, f"it did not answer within {slot.job.cell.limit + _GRACE:g} s")

    def _lost(self, error: Exception) -> Outcome:
        errors = self._ray.exceptions
        if isinstance(error, errors.OutOfMemoryError):
            return failure(NO_MEMORY, "the node ran out of memory, and Ray ended the worker")
        if isinstance(error, errors.RayActorError | errors.WorkerCrashedError | errors.ObjectLostError):
            return failure(LOST, f"its worker or its node is gone: {_sentence(error)}")
        return failure(CRASH, _sentence(error))

    def end(self) -> None:
        for slot in self._slots.values():
            if slot.job is not None:  # it would not hear that it is to leave before it is done
                with suppress(Exception):
                    self._ray.kill(slot.worker)
            else:
                self._cluster._end(slot.worker)


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:300]
