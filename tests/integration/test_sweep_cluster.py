"""Sweeps on a real Ray cluster: nodes that `ray start` starts on this machine, one of which is lost in the middle."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.ray_nodes import PATIENCE, RayNodes
from onnxmem.errors import OnnxmemError
from onnxmem.progress import Progress
from onnxmem.sweeping.read import Filter, read_rows
from onnxmem.sweeping.sweep import sweep

ray = pytest.importorskip("ray", reason="the extra 'cluster' is not installed")
MEMORY = 1024 * 2**20


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    """A head that this process is on, which has no processor for others, and a node that has."""
    os.environ |= PATIENCE
    with RayNodes() as found:
        found.add(memory=MEMORY)
        yield found


def left_behind() -> list[str]:
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("onnxmem.tmp-sweep-")]


def test_a_node_that_is_lost_loses_nothing(nodes: RayNodes, model: Path, chain: Path, tmp_path: Path) -> None:
    other = nodes.add(memory=MEMORY)
    models = [shutil.copy(path, tmp_path) for path in (model, chain)]
    before, store = left_behind(), tmp_path / "s.sqlite"
    received: set[str] = set()

    def on_progress(now: Progress) -> None:
        # Models are not where these nodes look: they come over the network.
        folders = [Path(tempfile.gettempdir()) / name for name in left_behind() if name not in before]
        received.update(path.name for folder in folders for path in folder.glob("*/*.onnx"))
        if now.done >= 4:
            nodes.kill(other)

    found = sweep(
        models,
        verbs=("plan", "measure"),
        dims={"batch": (1, 2, 3)},
        runs=1,
        threads=1,
        store=store,
        engine="ray",
        address=nodes.address,
        on_progress=on_progress,
    )
    assert found.ok and found.status.cells == 12 and found.status.engine == "ray", found.failures
    assert other not in nodes.alive, "nothing was lost"
    rows = list(read_rows(store, Filter()))
    assert len({(row["verb"], row["model"], row["size"]) for row in rows}) == 12
    assert {row["state"] for row in rows} == {"finished"} and len(found.status.processors) == 1
    assert received, "the nodes were given no model"
    assert [name for name in left_behind() if name not in before] == []
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_arrays_travel_and_what_has_no_room_is_a_row(nodes: RayNodes, model: Path, tmp_path: Path) -> None:
    feeds = tmp_path / "feeds.npz"
    np.savez(feeds, x=np.zeros((3, 64), np.float32))
    given: dict[str, Any] = {"runs": 1, "threads": 1, "engine": "ray", "address": nodes.address}
    fed = sweep(model, inputs=[feeds], store=tmp_path / "fed.sqlite", **given)
    assert fed.ok and fed.maps[0].sizes == ("feeds.npz",), fed.failures
    found = sweep(model, dims={"batch": (1, 10**7)}, store=tmp_path / "s.sqlite", **given)
    assert (found.status.finished, found.status.failed) == (1, 1)
    (large,) = found.failures
    assert large.size == "batch=10000000" and large.reason == "out of memory" and large.tries == 0
    assert "it is estimated to take" in large.message and "no place has more than 1.0 GiB" in large.message


def test_no_node_has_the_gpu(nodes: RayNodes, model: Path, tmp_path: Path) -> None:
    with pytest.raises(OnnxmemError, match="no node of the cluster has the GPU of 'cuda'"):
        sweep(model, device="cuda", store=tmp_path / "s.sqlite", engine="ray", address=nodes.address)


def test_a_cluster_that_is_not_there(model: Path, tmp_path: Path) -> None:
    with pytest.raises(OnnxmemError, match=r"no Ray cluster answers at '127\.0\.0\.1:1'"):
        sweep(model, store=tmp_path / "s.sqlite", engine="ray", address="127.0.0.1:1")
