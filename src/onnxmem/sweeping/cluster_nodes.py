"""The nodes of a Ray cluster: what each has, and how many cells have room there at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from onnxmem.measurement.device import HOST, device_number
from onnxmem.sweeping.cell import Stage


class Node(NamedTuple):
    """One of them, with what Ray may give away of it."""

    id: str
    alive: bool
    cpus: int
    memory: int
    gpus: int

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """As Ray tells it."""
        has = told["Resources"]
        return cls(told["NodeID"], told["Alive"], *(int(has.get(name, 0)) for name in ("CPU", "memory", "GPU")))

    def suits(self, stage: Stage) -> bool:
        """Whether cells of this stage can be worked out there."""
        return self.alive and self.cpus > 0 and self.gpus >= gpus_of(stage.device)

    def places(self, stage: Stage, parallel: int, memory: int = 0) -> int:
        """How many at a time, if each takes this much memory. Those that run have equal parts of the node."""
        if stage.runs:
            return min(parallel, self.cpus) if stage.device == HOST else 1
        return max(1, min(self.cpus, self.memory // memory)) if memory else self.cpus

    def room(self, stage: Stage, parallel: int) -> int:
        """The most memory that a cell may take there."""
        return self.memory // (self.places(stage, parallel) if stage.runs else 1)

    def reserved(self, stage: Stage, parallel: int, needs: Iterable[int]) -> int:
        """What each place there asks for: as much as the largest cell that has room."""
        room = self.room(stage, parallel)
        return max((need for need in needs if need <= room), default=0)


def gpus_of(device: str) -> int:
    """How many GPUs a cell asks for: Ray shows it only these, and it takes the last."""
    number = device_number(device)
    return 0 if number is None else number + 1


def on_node(node: str) -> Any:
    """Ray's word for: there, and nowhere else."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    return NodeAffinitySchedulingStrategy(node_id=node, soft=False)


def ray_sentence(error: Exception) -> str:
    """The last line of what Ray says, which is the one that tells."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:300]
