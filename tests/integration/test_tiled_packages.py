"""Packages with tiles: less memory, the same outputs, and a budget that is met or refused."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from onnxmem import InferenceSession, check, explain, measure, pack, repack, verify_package
from onnxmem.errors import UsageError
from onnxmem.explaining.attribution import peak_of
from onnxmem.packing.packed import Packed
from onnxmem.rewriting.rewriting import Rewriting, apply
from onnxmem.session.package import WEIGHTS
from tests.integration.commands import typed

SIDE, OTHER = 192, 64
SHAPE = (1, 3, SIDE, SIDE)
# There is only one: what a search for a better one takes, tests of orders pay.
ORDER = "ort-default"


def network(path: Path, size: int | str) -> Path:
    """Three convolutions over a large image, then a small one: 4.5 MiB for each of the large tensors."""
    random, nodes, weights, name, channels = np.random.default_rng(0), [], [], "x", 3
    for number, (filters, stride) in enumerate([(32, 1), (32, 1), (32, 2), (32, 4)]):
        array = random.standard_normal((filters, channels, 3, 3), np.float32) / 16
        weights.append(numpy_helper.from_array(array, f"w{number}"))
        made = f"c{number}"
        nodes.append(
            helper.make_node("Conv", [name, f"w{number}"], [made], pads=[1, 1, 1, 1], strides=[stride, stride])
        )
        nodes.append(helper.make_node("Relu", [made], [f"r{number}"]))
        name, channels = f"r{number}", filters
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["y"]))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 1, 1])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network(tmp_path_factory.mktemp("models") / "network.onnx", "side")


@pytest.fixture(scope="module")
def tiled(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return pack(source, tmp_path_factory.mktemp("packages") / "p", tile=True, plans=[{"x": SHAPE}], order=ORDER)


def image(side: int, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 3, side, side), np.float32)


def expected(source: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_runs_need_less_and_outputs_are_the_same(tiled: Packed, source: Path) -> None:
    (graph,), (reduced,) = tiled.manifest.tiled, tiled.manifest.reduced
    assert graph.peak_bytes == reduced.after_bytes < 0.6 * reduced.before_bytes
    assert reduced.parts and any(part.nodes > 0 for part in reduced.parts)
    assert graph.extra_work <= 0.1
    session = InferenceSession(tiled.folder)
    for seed in range(3):
        x = image(SIDE, seed)
        assert np.array_equal(session.run(None, {"x": x})[0], expected(source, x))
    memory = session.memory
    assert (memory.runs_replayed, memory.runs_deviated, memory.plan_bytes) == (3, 0, graph.peak_bytes)


def test_free_dimensions_choose_the_kernels(tmp_path: Path) -> None:
    """With shapes that are known, ONNX Runtime makes one Gemm of MatMul and Add, which gives other bits."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        network (float[batch, tokens, 64] x) => (float[batch, tokens, 64] y) {
            wide = MatMul(x, w)
            hidden = Add(wide, b)
            active = Relu(hidden)
            narrow = MatMul(active, v)
            y = Add(narrow, c)
        }""")
    random = np.random.default_rng(0)
    shapes = {"w": (64, 512), "b": (512,), "v": (512, 64), "c": (64,)}
    arrays = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    source = tmp_path / "tokens.onnx"
    onnx.save(model, source)
    packed = pack(source, tmp_path / "p", tile=True, plans=[{"x": (2, 512, 64)}], order=ORDER)
    assert [graph.inputs for graph in packed.manifest.tiled] == [{"x": (2, 512, 64)}], packed.manifest.notes
    x = random.standard_normal((2, 512, 64), np.float32)
    assert np.array_equal(InferenceSession(packed.folder).run(None, {"x": x})[0], expected(source, x))


def test_the_process_grows_less(tiled: Packed, source: Path) -> None:
    whole = measure(source, shapes={"x": SHAPE}, mode="planned", threads=1, repeat=1)
    pieces = measure(tiled.folder, shapes={"x": SHAPE}, threads=1, repeat=1)
    assert pieces.scenario.mode == "planned", "a package with tiles is measured as it is meant to be run"
    assert pieces.outputs_sha256 == whole.outputs_sha256
    assert isinstance(pieces.run_growth, int) and isinstance(whole.run_growth, int)
    assert pieces.run_growth < 0.7 * whole.run_growth
    # What is explained and estimated of it is that graph, too.
    (graph,), parts = tiled.manifest.tiled, {part.name: part.bytes for part in explain(pieces).parts}
    assert parts["activations"] == pytest.approx(graph.peak_bytes, rel=0.05)
    (checked,) = check(tiled.folder, "1GiB", shapes={"x": SHAPE}, threads=1, by="estimate").checks
    assert checked.key.mode == "planned" and isinstance(checked.figures.peak, int)
    assert checked.figures.peak == pytest.approx(peak_of(pieces), rel=0.1)


def test_other_shapes_run_untiled_from_the_same_weights(tiled: Packed, source: Path) -> None:
    session = InferenceSession(tiled.folder)
    session.run(None, {"x": image(SIDE)})
    mapped = [line.split()[2:5] for line in maps(tiled)]
    small = image(OTHER)
    assert np.array_equal(session.run(None, {"x": small})[0], expected(source, small))
    assert {tuple(place) for place in mapped} == {tuple(line.split()[2:5]) for line in maps(tiled)}
    assert session.get_inputs()[0].shape == [1, 3, "side", "side"]
    proto = onnx.load(tiled.package.model, load_external_data=False)
    raw = sum(int(np.prod(tensor.dims)) * 4 for tensor in proto.graph.initializer)
    assert (tiled.folder / WEIGHTS).stat().st_size < 1.2 * raw, "the weights are there once"


def maps(package: Packed) -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if line.endswith(str(package.folder / WEIGHTS))]


def test_a_package_made_again_is_tiled_again(tiled: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is asked to make is what was asked for the first time; whether it does is tested above."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr("onnxmem.packing.pack.pack", lambda *_, **keywords: asked.update(keywords))
    repack(tiled.folder)
    assert (asked["tile"], asked["extra_work"], asked["budget"], asked["order"]) == (True, 0.1, None, ORDER)
    assert asked["plans"] == [{"x": SHAPE}]
    repack(tiled.folder, budget=2**20)
    assert (asked["tile"], asked["extra_work"], asked["budget"]) == (True, None, 2**20)
    repack(tiled.folder, tile=False)
    assert (asked["tile"], asked["budget"]) == (False, None)
    verify_package(tiled.folder)


def test_a_graph_that_computes_something_else_is_left_out(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(proto: ModelProto, rewriting: Rewriting) -> ModelProto:
        changed = apply(proto, rewriting)
        for node in changed.graph.node:
            kept = [attribute for attribute in node.attribute if attribute.name != "activation"]
            del node.attribute[:]
            node.attribute.extend(kept)
        return changed

    monkeypatch.setattr("onnxmem.packing.tiling.apply", spoiled)
    package = pack(source, tmp_path / "p", tile=True, shapes={"x": SHAPE}, order=ORDER)
    assert package.manifest.tiled == ()
    assert "left out: its outputs are not the model's, bit for bit" in package.manifest.notes[-1]
    assert sorted(path.name for path in package.package.files) == ["model.onnx", "plans.json", WEIGHTS]
    assert package.manifest.reduced[0].after_bytes == package.manifest.plans[0].peak_bytes
    verify_package(package.folder)


def test_a_budget_is_met_with_the_least_that_does(tiled: Packed, source: Path, tmp_path: Path) -> None:
    free, best = tiled.manifest.plans[0].peak_bytes, tiled.manifest.tiled[0]
    budget = (free + best.peak_bytes) // 2
    shape = f"x={'x'.join(map(str, SHAPE))}"
    done = typed("pack", source, "-o", tmp_path / "p", "--shape", shape, "--budget", budget, "--order", ORDER)
    assert done.returncode == 0, done.stderr
    assert "What runs need on x" in done.stdout and "gave" in done.stdout and "cost" in done.stdout
    session, x = InferenceSession(tmp_path / "p"), image(SIDE)
    assert np.array_equal(session.run(None, {"x": x})[0], expected(source, x))
    plan = session.memory.plan_bytes
    assert isinstance(plan, int) and plan + x.itemsize * 32 <= budget
    assert session.graph is not None and session.graph.nodes <= best.nodes


def test_a_budget_that_cannot_be_met_is_refused_with_the_least(source: Path, tmp_path: Path) -> None:
    shape = f"x={'x'.join(map(str, SHAPE))}"
    done = typed("pack", source, "-o", tmp_path / "p", "--shape", shape, "--budget", "10KiB", "--order", ORDER)
    assert done.returncode == 1
    assert (
        "cannot be made to need 10.0 KiB or less: the least that was found is" in done.stderr
        and "more work" in done.stderr
    )
    assert list(tmp_path.iterdir()) == []


def test_wrong_wishes_are_refused_before_anything_is_done(source: Path, tmp_path: Path) -> None:
    for wish, message in (
        (("--extra-work", "10%"), "none are asked for"),
        (("--tile", "--extra-work", "much"), "no part of anything"),
        (("--tile", "--mode", "ort"), "tiles need a package of mode"),
        (("--budget", "0"), "more than nothing"),
    ):
        done = typed("pack", source, "-o", tmp_path / "p", *wish)
        assert done.returncode == 2 and message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_kill_while_tiles_are_sought_leaves_nothing(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "p"
    command = [sys.executable, "-m", "onnxmem", "pack", str(source), "-o", str(target), "--tile", "--order", ORDER]
    with subprocess.Popen([*command, "--shape", f"x={'x'.join(map(str, SHAPE))}"], stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if b"pieces" in line or b"searching tiles" in line:
                child.send_signal(signal.SIGKILL)
                break
    assert not target.exists()
    for left in tmp_path.iterdir():
        # A child that was being started at that moment has its lock for a moment, too.
        fcntl.flock(folder := os.open(left, os.O_RDONLY), fcntl.LOCK_EX)
        os.close(folder)
    pack(source, target, "external")
    assert [path.name for path in tmp_path.iterdir()] == ["p"], "the next one clears away what was left"


def test_a_model_with_fixed_shapes_is_tiled_when_it_is_loaded(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UsageError, match="free ones: side"):
        InferenceSession(source, tile=True)
    model, x = network(tmp_path / "fixed.onnx", SIDE), image(SIDE)
    session = InferenceSession(model, tile=True)
    assert session.graph is not None
    assert np.array_equal(session.run(None, {"x": x})[0], expected(model, x))
    (kept,) = (tmp_path / "cache" / "onnxmem").glob("tiled-fixed-*")
    made = (kept / "manifest.json").stat().st_mtime_ns
    assert InferenceSession(model, tile=True).graph == session.graph
    assert (kept / "manifest.json").stat().st_mtime_ns == made, "it is made once"
    with pytest.raises(UsageError, match="does not plan"):
        InferenceSession(model, tile=True, mode="stock")


def test_plans_and_estimates_say_it_before(source: Path) -> None:
    shape = ["--shape", f"x={'x'.join(map(str, SHAPE))}"]
    document = json.loads(typed("plan", source, *shape, "--tile", "--json").stdout)
    tiling = document["tiling"]
    assert tiling["ratio"] < 0.6 and tiling["nodes"] > tiling["nodes_before"] and tiling["parts"]
    assert document["lower_bound_bytes"] == tiling["after_bytes"] <= document["peak_bytes"]
    assert {row["kind"] for row in document["placement"]} >= {"stripe"}
    shown = typed("estimate", source, *shape, "--tile", "--extra-work", "2%").stdout
    assert "alive at once, tiled" in shown and "In pieces" in shown


def test_a_batch_is_run_a_few_rows_at_a_time_for_a_budget(tmp_path: Path) -> None:
    model = tmp_path / "rows.onnx"
    proto = onnx.load(network(model, 96))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(proto, model)
    x = np.random.default_rng(1).standard_normal((8, 3, 96, 96), np.float32)
    (reduced,) = pack(model, tmp_path / "p", budget=5 * 2**20, shapes={"x": x.shape}, order=ORDER).manifest.reduced
    assert reduced.before_bytes > 10 * 2**20 >= 2 * (reduced.after_bytes + reduced.output_bytes)
    assert "rows at a time" in reduced.parts[-1].part
    session = InferenceSession(tmp_path / "p")
    assert np.array_equal(session.run(None, {"x": x})[0], expected(model, x))
    (batch,) = session.memory.batches
    assert batch.parts > 1 and batch.needed <= 5 * 2**20
    alone = x[:1]
    assert np.array_equal(session.run(None, {"x": alone})[0], expected(model, alone))
