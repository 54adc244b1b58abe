"""Measuring a model in a process of its own: the figures, and every way that process can end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import onnxmem
from benchmarks import real_models
from onnxmem import Measurement, measure
from onnxmem.errors import ModelError, UsageError
from onnxmem.measurement import probes
from onnxmem.measurement.protocol import PHASES
from onnxmem.progress import Progress
from onnxmem.releasing.ladder import release_ladder
from onnxmem.report.build import make_report
from onnxmem.report.charts.timeline import timeline_chart
from onnxmem.report.render.to_terminal import render_terminal
from onnxmem.report.sections.peak_parts import parts_table
from onnxmem.unknown import Unknown
from tests.patience import patience

MIB = 2**20
WEIGHTS = 16 * MIB


def quick(model: Path, **settings: Any) -> Measurement:
    return measure(model, nodes=False, runs=2, **settings)


def known(value: object) -> int:
    assert isinstance(value, int), value
    return value


def text_of(result: Measurement) -> str:
    return render_terminal(make_report([result]), width=100)


def alive(pid: int) -> bool:
    return probes.sample(pid) is not None


def test_all_phases_with_all_quantities(matmul: Path) -> None:
    result = quick(matmul)
    assert result.verdict.ok
    assert tuple(phase.name for phase in result.phases) == PHASES
    for phase in result.phases[:-1]:
        reading = phase.reading
        assert known(reading.anon) + known(reading.file) == known(reading.rss) <= known(phase.peak.rss)
        assert known(reading.uss) <= known(reading.pss) <= known(reading.rss) < known(reading.virtual)
        assert phase.peak.exact and phase.completed and phase.seconds > 0
        assert not isinstance(phase.made_of, Unknown)
        assert sum(kind.rss for kind in phase.made_of) == pytest.approx(known(reading.rss), abs=MIB)
    assert result.phases[-1].reading.rss == 0
    assert known(result.load_growth) > WEIGHTS
    assert known(result.trial.phases[0].reading.rss) < 20 * MIB  # little is imported before it matters
    assert known(result.trial.overhead.child_bytes) < 3 * MIB


def test_the_same_weights_in_other_files(matmul: Path, external: Path, ort: Path) -> None:
    inline, mapped, flat = quick(matmul), quick(external, config={"session.disable_prepacking": "1"}), quick(ort)
    load = mapped.trial.phase("load")
    steady = mapped.trial.phase("steady runs")
    assert load and steady and not isinstance(steady.made_of, Unknown)
    assert known(load.reading.anon) - known(mapped.phases[2].reading.anon) < WEIGHTS / 2
    assert next(kind.rss for kind in steady.made_of if kind.name == "model files") >= WEIGHTS
    loaded = flat.trial.phase("load")
    # An .ort file is read whole before its weights are copied: gone when loading ends, but not from the peak.
    assert loaded and known(loaded.peak.rss) - known(loaded.reading.rss) > WEIGHTS / 2
    assert inline.outputs_sha256 == flat.outputs_sha256
    assert mapped.file_bytes == pytest.approx(inline.file_bytes, rel=0.01)
    assert measure(ort, mode="ort", runs=1, nodes=False).outputs_sha256 == inline.outputs_sha256


def test_modes_and_repetitions_agree(unet: Path) -> None:
    size = {"height": 128, "width": 128}
    stock = measure(unet, dims=size, repeat=2, runs=2)
    tuned = measure(unet, dims=size, mode="tuned", runs=2, nodes=False)
    assert len(stock.trials) == 2 and len(stock.latencies) == 4
    assert isinstance(stock.outputs_sha256, str) and stock.outputs_sha256 == tuned.outputs_sha256
    assert known(tuned.run_growth) < known(stock.run_growth)
    low, high = stock.spread("steady runs", "peak") or (0, 0)
    assert 0 < low <= high < 1.2 * low
    runtime = stock.runtime
    assert known(runtime.weights) + known(runtime.packed) == pytest.approx(7_702_536, rel=0.01)
    assert known(runtime.arena_held) > known(runtime.arena_peak) > known(runtime.packed)
    assert len(runtime.largest) == 10
    # In the last layers, 64 channels of the full size are joined: nothing is larger.
    assert runtime.largest[0].dynamic == 64 * 128 * 128 * 4
    assert any(known(node.temporary) > 0 and node.op == "ConvTranspose" for node in runtime.largest)


def test_the_document_has_what_others_rely_on(matmul: Path) -> None:
    document = json.loads(json.dumps(measure(matmul, runs=2).document()))
    assert document["schema"] == "onnxmem.measure/1"
    assert [phase["name"] for phase in document["phases"]] == list(PHASES)
    quantities = ("rss", "pss", "uss", "anon", "file", "virtual", "peak_rss")
    for phase in document["phases"][:-1]:
        assert all(isinstance(phase[f"{name}_bytes"], int) for name in quantities)
        assert isinstance(phase["seconds"], float)
    assert document["phases"][-1]["peak_rss_bytes"] is None
    assert "peak_rss_bytes" in document["phases"][-1]["unknown"]
    assert document["load_growth_bytes"] > WEIGHTS
    assert isinstance(document["run_growth_bytes"], int)
    spread = document["latency_spread_seconds"]
    assert spread["min"] <= document["latency_seconds"] <= spread["max"]
    assert len(document["outputs_sha256"]) == 64
    assert document["environment"]["onnxruntime"] and document["timeline"]
    assert document["dims"]["assumed"] == {"batch": 1}


@pytest.mark.parametrize("mode", ["stock", "planned"])
def test_a_measurement_comes_back_from_its_document(unet: Path, mode: str) -> None:
    result = measure(unet, dims={"height": 64, "width": 64}, mode=mode, runs=2, repeat=2)
    again = Measurement.from_document(json.loads(json.dumps(result.document())))
    assert again == result
    assert again.document() == result.document()
    assert repr(result) == f"<Measurement of unet.onnx, mode {mode}: ok>"


def test_one_that_failed_comes_back_too(unimplemented: Path) -> None:
    result = quick(unimplemented, options={"enable_mem_pattern": False}, config={"session.disable_prepacking": "1"})
    document = json.loads(json.dumps(result.document()))
    assert Measurement.from_document(document) == result
    assert document["scenario"]["options"] == {"enable_mem_pattern": False}
    assert document["scenario"]["config"] == {"session.disable_prepacking": "1"}


def test_outputs_are_a_part_of_the_peak_where_they_tell_their_size(strings: Path, tmp_path: Path) -> None:
    model = tmp_path / "wide.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    pair = helper.make_tensor_sequence_value_info("pair", TensorProto.FLOAT, ["n"])
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("SequenceConstruct", ["x", "y"], ["pair"])]
    graph = helper.make_graph(nodes, "wide", [x], [y, pair])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), model)
    found = measure(model, dims={"n": 2**20}, runs=2, nodes=False)
    assert found.output_bytes == found.document()["output_bytes"] == 3 * 4 * 2**20
    (part,) = [row for row in parts_table([("stock", found.document())]).rows if row[0].text == "outputs"]
    assert part[1].value == found.output_bytes
    assert Measurement.from_document(found.document()).output_bytes == found.output_bytes
    unsized = measure(strings, runs=1, nodes=False).output_bytes
    assert isinstance(unsized, Unknown) and "no plain array" in unsized.reason


def test_progress_goes_through_all_phases_of_all_trials(matmul: Path) -> None:
    seen: list[Progress] = []
    measure(matmul, runs=1, repeat=2, on_progress=seen.append)
    stages = [progress.stage for progress in seen]
    assert stages == [*(f"{p} ({k} of 2)" for k in (1, 2) for p in PHASES[:-1]), "profiling"]
    assert [progress.done for progress in seen[:-1]] == sorted(progress.done for progress in seen[:-1])
    assert all(progress.pid and progress.total == 2 * len(PHASES) for progress in seen[:-1])


@pytest.mark.parametrize("phase", PHASES[:-1])
def test_a_kill_loses_one_phase_only(matmul: Path, phase: str) -> None:
    seen: list[int] = []

    def kill(progress: Progress) -> None:
        name, pid = progress.stage, progress.pid or 0
        seen.append(pid)
        if name == phase:
            os.kill(pid, signal.SIGKILL)

    result = quick(matmul, on_progress=kill)
    assert (result.verdict.kind, result.verdict.phase) == ("killed", phase)
    before = PHASES[: PHASES.index(phase)]
    assert [p.name for p in result.phases if p.completed] == list(before)
    assert [p.name for p in result.phases] == [*before, phase]
    assert not alive(seen[0])
    json.dumps(result.document())
    assert f"was killed in phase '{phase}'" in text_of(result)
    assert timeline_chart(result.document()).to_dict()["vconcat"]


def test_a_crash_names_its_signal(matmul: Path) -> None:
    def crash(progress: Progress) -> None:
        name, pid = progress.stage, progress.pid or 0
        if name == "first run":
            os.kill(pid, signal.SIGSEGV)

    result = quick(matmul, on_progress=crash)
    assert (result.verdict.kind, result.verdict.phase) == ("crashed", "first run")
    assert "SIGSEGV" in result.verdict.message
    assert known(result.load_growth) > WEIGHTS
    assert isinstance(result.outputs_sha256, Unknown)


def test_a_process_that_hangs_is_stopped_and_still_read(matmul: Path) -> None:
    pids: list[int] = []

    def hang(progress: Progress) -> None:
        name, pid = progress.stage, progress.pid or 0
        if name == "load":
            pids.append(pid)
            os.kill(pid, signal.SIGSTOP)

    began = time.monotonic()
    result = quick(matmul, on_progress=hang, time_limit=3.0)
    assert time.monotonic() - began < 3 + patience(5)
    assert (result.verdict.kind, result.verdict.phase) == ("timed out", "load")
    assert not result.phases[-1].completed
    assert known(result.phases[-1].reading.pss) > 10 * MIB
    assert not alive(pids[0])


def test_too_little_memory_is_a_verdict(folder: Path, matmul: Path) -> None:
    enough = quick(matmul, memory_limit=512 * MIB)
    assert enough.verdict.ok and enough.trial.limited_by
    data = quick(matmul, memory_limit=70 * MIB, dims={"batch": 4096})
    assert data.verdict.kind == "out of memory" and data.verdict.limit == 70 * MIB
    assert "with a limit of 70.0 MiB" in str(data.verdict)
    assert data.document()["verdict"]["limit_bytes"] == 70 * MIB
    assert data.verdict.phase in ("import", "inputs", "load", "first run")
    assert data.phases[0].completed


def test_an_unknown_operator_fails_while_loading(unimplemented: Path) -> None:
    result = quick(unimplemented)
    assert (result.verdict.kind, result.verdict.phase) == ("failed", "load")
    assert "Telepathy" in result.verdict.message
    assert [phase.name for phase in result.phases][-1] == "load"
    assert known(result.phases[-1].peak.rss) > 0


def test_a_shape_the_model_cannot_take_fails_in_the_run(reshaping: Path) -> None:
    assert quick(reshaping, dims={"batch": 2}).verdict.ok
    result = quick(reshaping, dims={"batch": 3})
    assert (result.verdict.kind, result.verdict.phase) == ("failed", "first run")
    assumed = quick(reshaping)
    assert "these were assumed: batch=1" in assumed.verdict.hint and "--shape x=1x8" in assumed.verdict.hint


def test_assumed_dimensions_that_make_it_fail_are_named(reshaping: Path, tmp_path: Path) -> None:
    for attempt in (
        lambda: release_ladder(reshaping),
        lambda: onnxmem.trace(reshaping),
        lambda: onnxmem.pack(reshaping, tmp_path / "p", "external"),
    ):
        with pytest.raises(ModelError) as caught:
            attempt()
        assert "these were assumed: batch=1" in caught.value.hint and "--shape x=1x8" in caught.value.hint
    shared = onnxmem.share(reshaping, (1,), ("stock",), cold=False, runs=1)
    assert "these were assumed: batch=1" in shared.groups[0].failures[0]


def test_what_is_wrong_with_a_request_is_said_before_anything_runs(matmul: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        measure(tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="no input 'y'") as caught:
        measure(matmul, shapes={"y": (1, 1024)})
    assert "x" in caught.value.hint
    with pytest.raises(UsageError, match="fixed at 1024"):
        measure(matmul, shapes={"x": (1, 1000)})
    with pytest.raises(UsageError, match="no mode 'fast'"):
        measure(matmul, mode="fast")
    (tmp_path / "broken.ort").write_bytes(b"\x20\0\0\0ORTM" + bytes(range(100)))
    with pytest.raises(ModelError, match="ORT format"):
        measure(tmp_path / "broken.ort")


def test_without_permission_to_reset_peaks_are_sampled(matmul: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "reset_peak", lambda _pid: Unknown("clear_refs cannot be written"))
    result = quick(matmul)
    assert result.verdict.ok
    load = result.trial.phase("load")
    assert load and not load.peak.exact
    assert "sampled every 5 ms" in load.peak.method and "clear_refs" in load.peak.method
    assert "~ sampled every 5 ms, because clear_refs cannot be written" in text_of(result)
    assert known(result.load_growth) > WEIGHTS


def test_without_smaps_rollup_nothing_is_missing(matmul: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = probes._fields
    monkeypatch.setattr(
        probes, "_fields", lambda path: Unknown("none here") if path.name == "smaps_rollup" else read(path)
    )
    result = quick(matmul)
    assert all(known(phase.reading.pss) > 0 for phase in result.phases[:-1])
    assert result.phases[0].reading.source.endswith("/smaps")


def test_without_proc_psutil_measures_what_it_can(
    matmul: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "PROC", tmp_path / "none")
    result = quick(matmul)
    assert result.verdict.ok
    load = result.trial.phase("load")
    assert load and not load.peak.exact and load.reading.source == "psutil"
    assert isinstance(load.reading.pss, Unknown) and isinstance(load.made_of, Unknown)
    assert known(result.load_growth) > WEIGHTS
    assert result.document()["phases"][0]["unknown"]["pss_bytes"]
    assert "Not known: linux does not tell." in text_of(result)


def test_no_orphan_is_left_when_the_parent_is_killed(matmul: Path) -> None:
    code = (
        "import os, signal, sys, time, onnxmem\n"
        "def stop(progress):\n"
        "    pid = progress.pid\n"
        "    if progress.stage == 'first run':\n"
        "        os.kill(pid, signal.SIGSTOP)\n"
        "        print(pid, flush=True)\n"
        "        time.sleep(60)\n"
        "onnxmem.measure(sys.argv[1], on_progress=stop)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(matmul)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


@pytest.mark.models
@pytest.mark.parametrize("key", ["bert_pron", "silero", "piper"])
def test_real_models(real_model: Callable[[str], Path], key: str) -> None:
    model = real_models.find(key)
    ranges = {name: (float(allowed.low), float(allowed.high)) for name, allowed in model.integers.items()}
    nodes = key != "piper"  # its loop makes a profile of a quarter million events
    result = measure(real_model(key), shapes=model.shapes, ranges=ranges, runs=1, nodes=nodes)
    assert result.verdict.ok, result.verdict
    assert isinstance(result.outputs_sha256, str)
    assert isinstance(result.runtime.nodes, Unknown) is not nodes
