"""Sessions of packages that hold several graphs: which one serves a run, over one copy of the weights."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxmem import InferenceSession, pack, zoo
from onnxmem.errors import ModelError
from onnxmem.packing.blobs import adopt, always_read, blobs_of
from onnxmem.packing.build import build
from onnxmem.packing.recording import LoadSettings, record_plan
from onnxmem.session.package import MANIFEST, WEIGHTS, open_package, verify_package
from onnxmem.session.packed_graphs import KEEP_CONFIG, KEEP_OPTIONS, DeclaredTensor, TiledGraph
from onnxmem.session.stored_files import hash_file

SHAPE, OTHER = (4, 256), (6, 256)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three MatMuls with 0.75 MiB of weights, all of which kernels pack; the batch is free."""
    path = tmp_path_factory.mktemp("models") / "chain.onnx"
    onnx.save(zoo.build("matmul", layers=3, width=256), path)
    return path


@pytest.fixture(scope="module")
def package(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with one more graph for SHAPE. It computes nothing in another way: what counts is how it is used."""
    folder = tmp_path_factory.mktemp("packages")
    packed = pack(source, folder / "p", shapes={"x": SHAPE})
    work, target = folder / "work", folder / "p"
    work.mkdir()
    built = build(target / "model.onnx", work, "prepacked", shapes={"x": SHAPE})
    before = (target / WEIGHTS).stat().st_size
    adopt(built.rename(work / "tiled-1.onnx"), target / "model.onnx")
    assert (target / WEIGHTS).stat().st_size == before, "weights exist once, packed ones too"
    np.save(work / "x.npy", np.ones(SHAPE, np.float32))
    settings = LoadSettings(KEEP_OPTIONS, KEEP_CONFIG).under(packed.package.mode)
    plan = record_plan(target / "tiled-1.onnx", settings, [[("x", str(work / "x.npy"))]], seconds=1, timeout=60)
    (target / "tiled-1-plan.json").write_text(json.dumps([plan]))
    session = onnxruntime.InferenceSession(source)
    inputs, outputs = (
        tuple(DeclaredTensor(value.name, value.type, tuple(value.shape)) for value in values)
        for values in (session.get_inputs(), session.get_outputs())
    )
    graph = TiledGraph(
        inputs={"x": SHAPE},
        peak_bytes=plan["peak_bytes"],
        lower_bound_bytes=plan["lower_bound_bytes"],
        model="tiled-1.onnx",
        plan="tiled-1-plan.json",
        nodes=3,
        extra_work=0.0,
        always_read=always_read(target / "tiled-1.onnx"),
    )
    files = tuple(hash_file(path) for path in sorted(target.iterdir()) if path.name != MANIFEST)
    manifest = replace(packed.manifest, files=files, tiled=(graph,), inputs=inputs, outputs=outputs)
    (target / MANIFEST).write_text(manifest.text())
    verify_package(target)
    return target


def arrays(shape: tuple[int, ...], seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).random(shape, dtype=np.float32)}


def expected(source: Path, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(source).run(None, feeds)[0])


def graphs(session: InferenceSession) -> list[str]:
    loaded = session._graphs.loaded if session._graphs else [session]
    return [each.graph.model if each.graph else "model.onnx" for each in loaded]


def mapped_at(package: Path) -> set[int]:
    """The places in the weights' file that this process maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {int(line.split()[2], 16) for line in lines if line.endswith(str(package / WEIGHTS))}


def test_graphs_are_loaded_wherever_the_process_is(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(package.parent)
    session = InferenceSession(package.name)
    session.run(None, {"x": np.ones(SHAPE, np.float32)})
    monkeypatch.chdir("/")
    assert session.run(None, {"x": np.ones(OTHER, np.float32)})[0].shape == OTHER


def test_a_run_is_served_by_the_graph_for_its_shapes(source: Path, package: Path) -> None:
    session, fitting, other = InferenceSession(package), arrays(SHAPE), arrays(OTHER)
    assert [(value.name, value.shape, value.type) for value in session.get_inputs()] == [
        (value.name, value.shape, value.type) for value in onnxruntime.InferenceSession(source).get_inputs()
    ]
    assert np.array_equal(session.run(None, fitting)[0], expected(source, fitting))
    assert graphs(session) == ["tiled-1.onnx"], "the package's own graph is not loaded as long as nobody needs it"
    assert session.memory.runs_replayed == 1, "the first run is planned already"
    names = [value.name for value in session.get_outputs()]
    session.run(names, fitting)
    assert session.memory.runs_replayed == 2, "asking for all outputs by name is the same run"
    places = mapped_at(package)
    assert np.array_equal(session.run(None, other)[0], expected(source, other))
    assert graphs(session) == ["tiled-1.onnx", "model.onnx"]
    assert mapped_at(package) == places, "both graphs read the same places of one file"
    memory = session.memory
    assert (memory.runs_replayed, memory.runs_recorded) == (2, 1)
    assert [dict(shape.inputs)["x"] for shape in memory.shapes] == [SHAPE, OTHER]
    assert [plan["inputs"] for plan in session.export_plans()] == [[["x", list(OTHER)]]]
    assert len(session.traces()) == 2


def test_a_graph_that_nobody_runs_makes_room(package: Path, source: Path) -> None:
    session, other = InferenceSession(package), arrays(OTHER)
    assert np.array_equal(session.run(None, other)[0], expected(source, other))
    assert graphs(session) == ["model.onnx"]
    session.run(None, arrays(SHAPE))
    assert graphs(session) == ["model.onnx", "tiled-1.onnx"]


def test_bindings_and_ort_values_find_their_graph(package: Path, source: Path) -> None:
    session = InferenceSession(package)
    binding = session.io_binding()
    binding.bind_output("y")
    for shape in (SHAPE, OTHER, SHAPE):
        feeds = arrays(shape)
        binding.bind_cpu_input("x", feeds["x"])
        session.run_with_iobinding(binding)
        assert np.array_equal(binding.copy_outputs_to_cpu()[0], expected(source, feeds))
        values = {"x": onnxruntime.OrtValue.ortvalue_from_numpy(feeds["x"])}
        (output,) = session.run_with_ort_values(["y"], values)
        assert np.array_equal(output.numpy(), expected(source, feeds))
    assert graphs(session) == ["tiled-1.onnx", "model.onnx"]


def test_outputs_are_those_of_the_last_run_whatever_is_bound_next(package: Path, source: Path) -> None:
    session, feeds = InferenceSession(package), arrays(SHAPE)
    binding = session.io_binding()
    binding.bind_output("y")
    for bind_next in (lambda: binding.bind_cpu_input("x", arrays(OTHER)["x"]), binding.clear_binding_inputs):
        binding.bind_cpu_input("x", feeds["x"])
        session.run_with_iobinding(binding)
        bind_next()
        assert np.array_equal(binding.copy_outputs_to_cpu()[0], expected(source, feeds))


def test_without_plans_the_packages_own_graph_is_used(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxmem.session.session._WARNED", set())  # it is said once in a process
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    with pytest.warns(RuntimeWarning):
        session = InferenceSession(package, options)
    assert graphs(session) == ["model.onnx"]
    assert "tiled graphs need plans and are not used" in session.memory.reason
    session.run(None, arrays(SHAPE))
    assert graphs(InferenceSession(package, mode="prepacked")) == ["model.onnx"]


def test_a_session_is_gone_when_nobody_has_it(package: Path) -> None:
    session = InferenceSession(package)
    session.run(None, arrays(SHAPE))
    session.run(None, arrays(OTHER))
    gone = weakref.ref(session)
    gc.disable()
    try:
        del session
        assert gone() is None, "no cycle keeps its memory"
    finally:
        gc.enable()
    assert not mapped_at(package)


def test_a_graph_with_other_inputs_than_its_package_is_refused(package: Path, tmp_path: Path) -> None:
    """The manifest tells callers what to feed: a graph that wants something else would fail in mid-run."""
    copied = Path(shutil.copytree(package, tmp_path / "p"))
    graph = onnx.load(copied / "tiled-1.onnx", load_external_data=False)
    graph.graph.input[0].name = graph.graph.node[0].input[0] = "other"
    (copied / "tiled-1.onnx").write_bytes(graph.SerializeToString())
    made = open_package(package).manifest
    files = tuple(hash_file(copied / file.name) for file in made.files)
    (copied / MANIFEST).write_text(replace(made, files=files).text())
    with pytest.raises(ModelError, match=r"tiled-1.onnx' has other inputs or outputs than its package"):
        InferenceSession(copied)


def test_stripes_share_packed_weights(package: Path) -> None:
    """Notes on packed forms belong to weights, not to nodes: whatever reads the weight finds them."""
    packed = []
    for name in ("model.onnx", "tiled-1.onnx"):
        proto = onnx.load(package / name, load_external_data=False)
        stored = [tensor for tensor in proto.graph.initializer if tensor.external_data]
        packed.append({blob for tensor in stored for blob in blobs_of(tensor, package) if blob.packed})
    assert packed[0] == packed[1] and len(packed[0]) == 3
    assert open_package(package).manifest.tiled[0].always_read == open_package(package).manifest.always_read


def test_a_graph_that_could_not_be_loaded_once_is_loaded_the_next_time(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = InferenceSession(package).run(None, arrays(OTHER))
    session = InferenceSession(package)
    with monkeypatch.context() as patch:
        patch.setattr(onnxruntime.InferenceSession, "__init__", lambda *_, **__: os.open("/nowhere/at/all", 0))
        with pytest.raises(FileNotFoundError):
            session.run(None, arrays(OTHER))
    found = session.run(None, arrays(OTHER))
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("when", ["it begins", "it is done"])
@pytest.mark.parametrize("shape", [SHAPE, OTHER])
def test_a_handler_of_signals_may_run_while_a_graph_is_loaded(
    package: Path, source: Path, shape: tuple[int, ...], when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, wanted, seen = InferenceSession(package), arrays(OTHER), []
    made = onnxruntime.InferenceSession.__init__

    def run(*_: Any) -> None:
        seen.append(session.run(None, arrays(shape))[0])

    def load(self: Any, *arguments: Any, **keywords: Any) -> None:
        if self is session and when == "it begins":
            signal.raise_signal(signal.SIGUSR1)
        made(self, *arguments, **keywords)
        if self is session and when == "it is done":
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, run)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(onnxruntime.InferenceSession, "__init__", load)
            outputs = session.run(None, wanted)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert np.array_equal(outputs[0], expected(source, wanted))
    assert [np.array_equal(each, expected(source, arrays(shape))) for each in seen] == [True]
    for feeds in (arrays(SHAPE), wanted):
        assert np.array_equal(session.run(None, feeds)[0], expected(source, feeds))
