"""Which cells have room on a node, and how many at a time."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from onnxmem.sweeping.cell import Stage
from onnxmem.sweeping.cluster_nodes import Node, gpus_of
from onnxmem.sweeping.cluster_slots import Slot, next_job
from onnxmem.sweeping.engine import Job
from onnxmem.sweeping.sent_files import SentFiles
from tests.unit.sweeping.samples import HERE, cell

READ, RUN, GPU = Stage(False), Stage(True), Stage(True, "cuda:1")


def node(**resources: float) -> Node:
    return Node.of({"NodeID": "n", "Alive": True, "Resources": {"CPU": 4.0, "memory": 1000.0, **resources}})


def test_a_node_has_room_by_its_processors_memory_and_gpus() -> None:
    assert node().suits(RUN) and not node().suits(GPU) and not node(GPU=1.0).suits(GPU) and node(GPU=2.0).suits(GPU)
    assert not node(CPU=0.0).suits(READ) and not node()._replace(alive=False).suits(READ)
    assert gpus_of("cpu") == 0 and gpus_of("cuda") == 1 and gpus_of("cuda:1") == 2
    # Cells that run have equal parts of a node; of others there are as many as have room.
    assert node().places(RUN, 1) == 1 and node().places(RUN, 2) == 2 and node().places(RUN, 9) == 4
    assert node(GPU=2.0).places(GPU, 2) == 1
    assert [node().places(READ, 1, memory) for memory in (0, 100, 400, 1000)] == [4, 4, 2, 1]
    assert node().room(RUN, 2) == 500 and node().room(READ, 2) == 1000


def test_a_place_asks_for_as_much_as_its_largest_cell() -> None:
    assert node().reserved(RUN, 2, (100, 400, 501)) == 400
    assert node().reserved(READ, 2, (100, 400, 501)) == 501
    assert node().reserved(RUN, 1, (2000,)) == 0


def test_a_job_waits_for_a_place_that_has_its_memory_and_processor() -> None:
    jobs = [Job(id=0, cell=cell(), memory=200), Job(id=1, cell=cell(), processor="another"), Job(id=2, cell=cell())]
    queue, small = deque(jobs), Slot("n", 100, None, None, processor=HERE)
    assert next_job(queue, small) == jobs[2] and next_job(queue, small) is None
    assert next_job(queue, Slot("m", 200, None, None, processor=HERE)) == jobs[0] and list(queue) == [jobs[1]]


def test_files_are_sent_once_and_let_go_of_after_their_last_cell(tmp_path: Path) -> None:
    model, weights, inputs = tmp_path / "net.onnx", tmp_path / "more" / "net.bin", tmp_path / "f.npz"
    weights.parent.mkdir()
    for path in (model, weights, inputs):
        path.write_text(path.name)
    plain = cell(model=model, files=(model, weights))
    fed = cell(model=model, files=(model, weights), inputs=inputs, inputs_sha256="cd" * 32)
    put: list[bytes] = []
    sent = SentFiles(lambda piece: put.append(piece) or len(put), [plain, fed])  # type: ignore[func-returns-value]
    assert sent.files(plain) == {plain.sha256: {"net.onnx": [1], "more/net.bin": [2]}}
    assert sent.files(fed) == {**sent.files(plain), fed.inputs_sha256: {"f.npz": [3]}}
    assert put == [b"net.onnx", b"net.bin", b"f.npz"]
    sent.done(plain)
    sent.files(fed)
    assert len(put) == 3
    sent.done(fed)
    sent.files(plain)
    assert len(put) == 5
