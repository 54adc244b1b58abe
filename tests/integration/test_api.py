"""Every verb has its function and every result its class: called as the README would call them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxmem
from onnxmem import zoo
from onnxmem.result import Result

SHAPES = {"image": (1, 3, 64, 64)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    onnx.save(zoo.build("unet", channels=4), folder / "m.onnx")
    onnx.save(zoo.build("unet", channels=4), folder / "n.onnx")
    np.savez(folder / "feeds.npz", image=np.zeros((1, 3, 64, 64), np.float32))
    (folder / "p.csv").write_text("id,lower,upper,size\na,0,2,10\nb,1,3,20\n")
    return folder


VERBS: dict[str, tuple[type[Result], Callable[[str], Any]]] = {
    "estimate": (onnxmem.Estimate, lambda at: onnxmem.estimate(f"{at}/m.onnx", shapes=SHAPES, time_limit=20)),
    "plan": (onnxmem.Planning, lambda at: onnxmem.plan(f"{at}/m.onnx", shapes=SHAPES, strategy="best")),
    "plan a CSV": (onnxmem.Planning, lambda at: onnxmem.plan(f"{at}/p.csv", capacity=64)),
    "measure": (onnxmem.Measurement, lambda at: onnxmem.measure(f"{at}/m.onnx", inputs=f"{at}/feeds.npz", runs=1)),
    "trace": (onnxmem.Tracing, lambda at: onnxmem.trace(f"{at}/m.onnx", shapes=SHAPES)),
    "release": (onnxmem.Ladder, lambda at: onnxmem.release_ladder(f"{at}/m.onnx", shapes=SHAPES, runs=1)),
    "check": (onnxmem.Checking, lambda at: onnxmem.check(f"{at}/m.onnx", "1GiB", shapes=SHAPES, runs=1)),
    "compare": (
        onnxmem.Comparison,
        lambda at: onnxmem.compare(
            [f"{at}/m.onnx", f"{at}/n.onnx"], shapes=SHAPES, runs=1, repeat=1, repeat_limit=1, advice=False
        ),
    ),
    "share": (
        onnxmem.Sharing,
        lambda at: onnxmem.share(f"{at}/m.onnx", workers=(1,), modes=("stock",), shapes=SHAPES, runs=1, cold=False),
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_its_function(folder: Path, verb: str) -> None:
    kind, call = VERBS[verb]
    result = call(str(folder))
    assert type(result) is kind
    assert "\n" not in repr(result) and len(repr(result)) < 160
    document = json.loads(json.dumps(result.document()))
    assert document["schema"].startswith("onnxmem.") and {"environment", "command", "date"} <= document.keys()
    assert kind.from_document(document) == result
    report = onnxmem.make_report([result])
    assert isinstance(report, onnxmem.Report) and "\n" not in repr(report)


def test_packages_are_made_verified_and_loaded(folder: Path, tmp_path: Path) -> None:
    package = onnxmem.pack(str(folder / "m.onnx"), str(tmp_path / "p"), shapes=SHAPES, seed=1)
    assert isinstance(package, onnxmem.Packed) and "\n" not in repr(package)
    assert onnxmem.verify_package(str(tmp_path / "p")) == package.package
    assert onnxmem.Packed.from_document(json.loads(json.dumps(package.document()))) == package
    session = onnxmem.InferenceSession(str(tmp_path / "p"))
    assert session.run(None, {"image": np.zeros((1, 3, 64, 64), np.float32)})[0].shape == (1, 2, 64, 64)


def test_models_are_converted(folder: Path, tmp_path: Path) -> None:
    converted = onnxmem.convert(str(folder / "m.onnx"), to="external", output=str(tmp_path / "e.onnx"))
    assert isinstance(converted, onnxmem.Converted) and "\n" not in repr(converted)
    assert [Path(file.path).name for file in converted.files] == ["e.onnx", "e.weights"]


def test_plans_are_validated_written_and_read(folder: Path, tmp_path: Path) -> None:
    plan = onnxmem.solve(onnxmem.read_problem(str(folder / "p.csv")), "best")
    onnxmem.validate_plan(plan)
    onnxmem.write_plan(plan, str(tmp_path / "plan.csv"))
    assert onnxmem.read_plan(str(tmp_path / "plan.csv")).peak == plan.peak == 30


def test_reports_are_saved_and_read(folder: Path, tmp_path: Path) -> None:
    report = onnxmem.make_report([onnxmem.plan(folder / "p.csv")], "Mine")
    for suffix in ("html", "md", "txt", "json"):
        onnxmem.save_report(report, str(tmp_path / f"r.{suffix}"))
    assert onnxmem.read_report([str(tmp_path / "r.json")], "Mine") == report


def test_the_two_functions_about_releasing(folder: Path) -> None:
    shown = onnxmem.demonstrate_actual_onnx_memory_release(str(folder / "m.onnx"), shapes=SHAPES, runs=1)
    assert isinstance(shown, onnxmem.Demonstration) and "\n" not in repr(shown)
    tracked = onnxmem.track_onnx_runtime_memory_release(str(folder / "m.onnx"), shapes=SHAPES, runs=1)
    assert isinstance(tracked, onnxmem.Tracking) and "\n" not in repr(tracked)


def test_the_readmes_library_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image: list[str | int | None] = ["batch", 3, "height", "width"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, image)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, image)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    text = (Path(__file__).parents[2] / "README.md").read_text()
    section = text[text.index("## As a library") : text.index("## Limits")]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})
    assert (tmp_path / "report.html").is_file()
