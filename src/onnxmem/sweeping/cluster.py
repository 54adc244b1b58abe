"""Cells on a Ray cluster: workers that have their cores to themselves, on every node; those that are lost are replaced.

Workers are actors that ask for what their cells need: as many processors as these have cores, memory by estimate, and
GPUs. So neither other cells nor other users of the cluster run there meanwhile.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Self

from onnxmem.environment import available_cores, package_version
from onnxmem.errors import OnnxmemError, RuntimeUnsupported, UsageError, check_extra
from onnxmem.measurement.device import HOST
from onnxmem.sweeping.cell import Stage
from onnxmem.sweeping.cluster_nodes import Node, gpus_of, on_node, ray_sentence
from onnxmem.sweeping.cluster_slots import Slots, next_job
from onnxmem.sweeping.engine import Answers, Job, OnStart
from onnxmem.sweeping.node import Greeting, Worker, greet
from onnxmem.sweeping.outcome import NO_MEMORY, Outcome, failure
from onnxmem.sweeping.sent_files import SentFiles
from onnxmem.units import format_bytes

_KNOCK, _PAUSE, _FIRST = 3.0, 1.0, 60.0
_NO_ANSWER = "ray start --head starts one; if it asks for a token, set RAY_AUTH_MODE=token here, and where nodes start"
_VARIABLES = {
    # Nothing of a sweep is anyone else's business.
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray gives way to all others unless it is told not to: what is measured here would be slower than elsewhere.
    "RAY_worker_niceness": "0",
}


class Cluster:
    """A Ray cluster at an address, or one that is started on this machine and ends with it."""

    name = "ray"

    def __init__(self, address: str | None = None, parallel: int = 1, retries: int = 0) -> None:
        check_extra("cluster")
        for name, value in _VARIABLES.items():
            os.environ.setdefault(name, value)
        import ray  # noqa: PLC0415

        # After the import, which has its own idea of what is to be said.
        logging.getLogger("ray").setLevel(logging.ERROR)
        if parallel < 1:
            raise UsageError(f"{parallel} measurements at a time are none")
        if address is not None:
            _knock(address)
        self.ray, self._parallel, self._retries = ray, parallel, retries
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
        except (ConnectionError, ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
            raise _no_answer(address, str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.ray.shutdown()

    def workers(self, stage: Stage) -> int:
        return sum(node.places(stage, self._parallel) for node in self.nodes(stage))

    def processors(self, stage: Stage) -> Sequence[str]:
        nodes = self._first_nodes(stage)
        if not nodes and stage.device != HOST:
            raise RuntimeUnsupported(
                f"no node of the cluster has the GPU of '{stage.device}'",
                hint="ray start --num-gpus 1 names one that Ray does not see",
            )
        if not nodes:
            raise OnnxmemError("the cluster has no node that works", hint="the same command goes on once it has")
        told = self._told(stage.device)
        places = {node.id: node.places(stage, self._parallel) if stage.runs else 1 for node in nodes}
        return tuple(dict.fromkeys(told[node].processor(count) for node, count in places.items() if node in told))

    def _first_nodes(self, stage: Stage) -> list[Node]:
        """Those that there are; a node that has just been started may take a while to be known."""
        until = time.monotonic() + _FIRST
        while not (nodes := self.nodes(stage)) and stage.device == HOST and time.monotonic() < until:
            time.sleep(_PAUSE)
        return nodes

    def memory(self, stage: Stage) -> int | None:
        return min((node.room(stage, self._parallel) for node in self.nodes(stage)), default=None)

    def nodes(self, stage: Stage) -> list[Node]:
        """Those that are alive, and have what the stage needs."""
        return [node for each in self.ray.nodes() if (node := Node.of(each)).suits(stage)]

    @cache  # noqa: B019  it lives as long as the sweep
    def _told(self, device: str) -> dict[str, Greeting]:
        """Who the nodes are: those that answer. Asked in a task, for which Ray has processes at hand."""
        while nodes := self.nodes(Stage(True, device)):
            if told := self._greeted(nodes, device):
                return told
            time.sleep(_PAUSE)
        return {}

    def _greeted(self, nodes: Sequence[Node], device: str) -> dict[str, Greeting]:
        ask, told = self.ray.remote(greet), {}
        asked = {
            node.id: ask.options(num_cpus=0, scheduling_strategy=on_node(node.id)).remote(device) for node in nodes
        }
        for node, answer in asked.items():
            try:
                told[node] = self.checked(self.ray.get(answer))
            except self.ray.exceptions.RayTaskError as error:
                hint = "every node needs onnxmem"
                raise OnnxmemError(f"a node cannot work: {ray_sentence(error)}", hint=hint) from error
            except self.ray.exceptions.RayError:
                continue  # it is lost
        return told

    def checked(self, document: Any) -> Greeting:
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

    def start(self, node: Node, stage: Stage, place: int, places: int, memory: int) -> Any:
        """A worker on a node, at one of its places, with cores of its own if it runs models."""
        actor = self.ray.remote(Worker).options(
            num_cpus=node.cpus / places if stage.runs else 1,
            num_gpus=gpus_of(stage.device),
            memory=memory,
            scheduling_strategy=on_node(node.id),
            max_restarts=0,
        )
        return actor.remote(self._sweep, place if stage.runs else None, places, os.environ.get("OMP_NUM_THREADS"))

    def run(self, jobs: Sequence[Job], stage: Stage, on_start: OnStart) -> Answers:
        # While there is no node at all, nobody knows what the next will have.
        most = max((node.room(stage, self._parallel) for node in self.nodes(stage)), default=sys.maxsize)
        for large in (job for job in jobs if job.memory > most):
            message = f"it is estimated to take {format_bytes(large.memory)}, and no place has more than"
            yield large, failure(NO_MEMORY, f"{message} {format_bytes(most)}", tries=0)
        queue = deque(job for job in jobs if job.memory <= most)
        slots = Slots(self, stage, self._parallel, [job.memory for job in queue])
        sent = SentFiles(self.ray.put, [job.cell for job in queue])
        answers: list[tuple[Job, Outcome]] = []
        try:
            while queue or slots.busy:
                slots.refresh()
                for slot in slots.idle:
                    job = next_job(queue, slot)
                    if job is not None:
                        on_start(job)
                        slot.begin(job, {} if self._local(slot.node) else sent.files(job.cell), self.ray.get)
                yield from answers
                answers = []
                if queue and not slots.busy and slots.all_idle:
                    missing = ", ".join(dict.fromkeys(job.processor for job in queue if job.processor))
                    raise OnnxmemError(
                        f"no node has the processor or the memory of {len(queue)} cells any more: "
                        f"{missing or format_bytes(min(job.memory for job in queue))}",
                        hint="the same command goes on once one has",
                    )
                for slot, outcome in list(slots.outcomes()):
                    done, slot.job = slot.job, None
                    assert done is not None
                    if outcome.lost and done.tries <= self._retries:
                        queue.append(replace(done, tries=done.tries + 1))
                    else:
                        sent.done(done.cell)
                        answers.append((done, replace(outcome, tries=done.tries)))
            yield from answers
        finally:
            slots.end()

    def _local(self, node: str) -> bool:
        """Whether this process runs on that node, and so has the same files."""
        return not self._remote and node == self.ray.get_runtime_context().get_node_id()


def _knock(address: str) -> None:
    """Does anyone listen there? Ray would try for minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator:  # "auto", which Ray knows itself
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_answer(address, str(error)) from error


def _no_answer(address: str | None, why: str) -> OnnxmemError:
    said = " ".join(why.split())[:200]
    if address is None:
        return OnnxmemError(f"Ray does not start: {said}")
    return OnnxmemError(
        f"no Ray cluster answers at '{address}': {said}",
        hint=_NO_ANSWER,
    )
