"""Sharing: N workers at once, who shares what, and no worker left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import psutil
import pytest

from onnxmem import zoo
from onnxmem.errors import UsageError
from onnxmem.packing.pack import pack
from onnxmem.report.charts.curves import share_chart
from onnxmem.report.save import save_chart
from onnxmem.sharing.share import share
from onnxmem.sharing.sharing import Sharing

MIB = 2**20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "chain.onnx"
    onnx.save(zoo.build("matmul", layers=8, width=1024), path)
    return path


def workers_alive() -> list[int]:
    mine = psutil.Process().children(recursive=True)
    return [child.pid for child in mine if "onnxmem.measurement.worker" in " ".join(child.cmdline())]


def test_weights_are_there_once(model: Path, tmp_path: Path) -> None:
    """32 MiB of weights: three workers of stock have them three times, packed ones in a file once."""
    result = share(model, (3,), ("stock", "prepacked"), runs=2, shapes={"x": (4, 1024)})
    stock, packed = result.modes
    assert isinstance(stock.total_pss, int) and isinstance(packed.total_pss, int)
    assert stock.total_pss - packed.total_pss > 1.8 * 32 * MIB
    assert isinstance(packed.model_pss, int)
    assert 31 * MIB < packed.model_pss < 40 * MIB
    assert isinstance(packed.worker_anon, int) and isinstance(stock.worker_anon, int)
    assert stock.worker_anon - packed.worker_anon > 28 * MIB
    assert isinstance(packed.of_floor, float) and packed.of_floor < 1.15
    assert packed.same_outputs is True
    assert result.recommendations[0].mode == "prepacked"
    assert Sharing.from_document(json.loads(json.dumps(result.document()))) == result
    check_document(result)
    save_chart(share_chart(result.document()), tmp_path / "share.svg")
    text = (tmp_path / "share.svg").read_text()
    for word in ("prepacked", "stock", "floor", "workers", "total PSS"):
        assert word in text


def check_document(result: Sharing) -> None:
    document = result.document()
    assert document["schema"] == "onnxmem.share/1"
    assert [(mode["mode"], mode["workers"]) for mode in document["modes"]] == [("stock", 3), ("prepacked", 3)]
    for mode in document["modes"]:
        for name in ("total_pss_bytes", "per_worker_uss_bytes", "load_peak_bytes", "floor_bytes"):
            assert isinstance(mode[name], int), name
        for name in ("load_seconds", "latency_seconds"):
            assert mode[name] > 0
        cold = mode["load_cold_seconds"]
        assert cold is None or cold > 0
        assert (cold is None) == ("load_cold_seconds" in mode.get("unknown", {}))


def test_a_package_is_measured_in_its_mode(model: Path, tmp_path: Path) -> None:
    pack(model, tmp_path / "p")
    seen: list[tuple[int, ...]] = []
    found = share(tmp_path / "p", (2,), runs=1, cold=False, on_hold=seen.append)
    assert [each.mode for each in found.modes] == ["prepacked"]
    assert len(seen[0]) == 2
    assert workers_alive() == []


def test_planned_workers_of_a_package_share_its_weights(model: Path, tmp_path: Path) -> None:
    pack(model, tmp_path / "p")
    found = share(tmp_path / "p", (2,), ("stock", "planned"), runs=1, cold=False)
    stock, planned = found.modes
    assert isinstance(stock.worker_anon, int) and isinstance(planned.worker_anon, int)
    assert stock.worker_anon - planned.worker_anon > 28 * MIB
    assert planned.same_outputs is True


def test_failures_are_reported_and_the_others_go_on(model: Path) -> None:
    found = share(model, (2,), ("stock",), runs=1, cold=False, options={"optimized_model_filepath": "/none/x.onnx"})
    assert all("worker 1 of 2: " in group.failures[0] for group in found.groups)
    assert found.document()["modes"][0]["total_pss_bytes"] is None
    assert workers_alive() == []


def test_a_worker_that_is_killed_is_a_failure(model: Path) -> None:
    def kill(pids: tuple[int, ...]) -> None:
        os.kill(pids[0], signal.SIGKILL)

    found = share(model, (2,), ("stock",), runs=1, cold=False, on_hold=kill)
    assert "worker 1 of 2: killed" in found.groups[0].failures[0]


def test_none_is_left_when_the_parent_gives_up_or_dies(model: Path) -> None:
    def give_up(pids: tuple[int, ...]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        share(model, (2,), ("stock",), runs=1, cold=False, on_hold=give_up)
    assert workers_alive() == []
    code = (
        "import sys, time\nfrom onnxmem import share\n"
        "def hold(pids):\n    print(*pids, flush=True)\n    time.sleep(60)\n"
        "share(sys.argv[1], (2,), ('stock',), runs=1, cold=False, on_hold=hold)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, model], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 5
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.05)


def test_wrong_requests(model: Path) -> None:
    for numbers in ((), (0,), (1000,)):
        with pytest.raises(UsageError, match="numbers of workers"):
            share(model, numbers)
    with pytest.raises(UsageError, match="there is no mode"):
        share(model, (1,), ("fast",))
