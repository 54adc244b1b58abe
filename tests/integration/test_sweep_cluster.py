"""Sweeps on a real Ray cluster: two nodes on this machine, one of which is lost in the middle."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxmem.errors import OnnxmemError
from onnxmem.progress import Progress
from onnxmem.sweeping.read import Filter, read_rows
from onnxmem.sweeping.sweep import sweep

ray = pytest.importorskip("ray", reason="the extra 'cluster' is not installed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that this process is on, which has no processor for others, and a node that has."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    # However long a busy machine takes: nodes are given time to start, and are not thought dead because they are slow.
    patience = ("RAY_raylet_start_wait_time_s", "RAY_health_check_timeout_ms", "RAY_gcs_server_request_timeout_seconds")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    os.environ |= dict(zip(patience, ("600", "60000", "300"), strict=True))
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    found.add_node(num_cpus=1)
    try:
        yield found
    finally:
        ray.shutdown()
        found.shutdown()


def left_behind() -> list[str]:
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("onnxmem.tmp-sweep-")]


def test_a_node_that_is_lost_loses_nothing(cluster: Any, model: Path, chain: Path, tmp_path: Path) -> None:
    other = cluster.add_node(num_cpus=1)
    models = [shutil.copy(path, tmp_path) for path in (model, chain)]
    before, store = left_behind(), tmp_path / "s.sqlite"
    received: set[str] = set()

    def on_progress(now: Progress) -> None:
        # Models are not where these nodes look: they come over the network.
        folders = [Path(tempfile.gettempdir()) / name for name in left_behind() if name not in before]
        received.update(path.name for folder in folders for path in folder.glob("*/*.onnx"))
        if now.done >= 4 and other in cluster.list_all_nodes():
            cluster.remove_node(other, allow_graceful=False)

    found = sweep(
        models,
        verbs=("plan", "measure"),
        dims={"batch": (1, 2, 3)},
        runs=1,
        threads=1,
        store=store,
        engine="ray",
        address=cluster.address,
        on_progress=on_progress,
    )
    assert found.ok and found.status.cells == 12 and found.status.engine == "ray", found.failures
    rows = list(read_rows(store, Filter()))
    assert len({(row["verb"], row["model"], row["size"]) for row in rows}) == 12
    assert {row["state"] for row in rows} == {"finished"} and len(found.status.processors) == 1
    assert received, "the nodes were given no model"
    assert [name for name in left_behind() if name not in before] == []


def test_a_cluster_that_is_not_there(model: Path, tmp_path: Path) -> None:
    with pytest.raises(OnnxmemError, match=r"no Ray cluster answers at '127\.0\.0\.1:1'"):
        sweep(model, store=tmp_path / "s.sqlite", engine="ray", address="127.0.0.1:1")
