"""`onnxmem measure` as a user calls it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.integration.commands import typed


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return typed("measure", *arguments)


def test_text_files_and_picture(matmul: Path, tmp_path: Path) -> None:
    result, picture = tmp_path / "result.json", tmp_path / "timeline.svg"
    done = run(matmul, "--dim", "batch=8", "--runs", "2", "-o", result, "--picture", picture)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(len(line) <= 100 and line == line.rstrip() for line in lines)
    assert any(line.startswith("steady runs") for line in lines)
    assert "peak RSS while loading" in done.stdout and "Largest nodes" in done.stdout
    assert "Measuring took" in done.stdout
    assert json.loads(result.read_text())["inputs"]["x"]["shape"] == [8, 1024]
    assert "steady runs" in picture.read_text()


def test_feeds_decide_the_outputs(matmul: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.ones((2, 1024), np.float32))
    arguments = (matmul, "--inputs", tmp_path / "feeds.npz", "--runs", "1", "--no-nodes", "--json")
    first, second = json.loads(run(*arguments).stdout), json.loads(run(*arguments, "--mode", "tuned").stdout)
    assert first["outputs"] == {"y": [2, 1024]} and first["generated"] == {}
    assert first["outputs_sha256"] == second["outputs_sha256"]


def test_a_planned_run_says_what_its_plan_took(matmul: Path, tmp_path: Path) -> None:
    arguments = (matmul, "--dim", "batch=64", "--runs", "3")
    stock = json.loads(run(*arguments, "--no-nodes", "--json").stdout)
    text = run(*arguments, "--mode", "planned", "-o", tmp_path / "planned.json").stdout
    planned = json.loads((tmp_path / "planned.json").read_text())
    assert stock["planned"] is None
    assert planned["outputs_sha256"] == stock["outputs_sha256"]
    counts = [planned["planned"][f"runs_{what}"] for what in ("recorded", "replayed", "deviated", "from_heap")]
    assert counts == [1, 3, 0, 0]
    assert planned["planned"]["loaded_mode"] == "planned" and planned["planned"]["reason"] is None
    assert 0 < planned["planned"]["lower_bound_bytes"] <= planned["planned"]["plan_bytes"]
    # ONNX Runtime's own figures come from its own allocator.
    assert planned["runtime"]["arena_peak_bytes"] > 0
    assert "1 recorded, 3 inside the plan" in text


def test_a_run_that_could_not_be_planned_says_why(matmul: Path, tmp_path: Path) -> None:
    arguments = (matmul, "--mode", "planned", "--runs", "1", "--no-nodes", "--option", "execution_mode=ORT_PARALLEL")
    text = run(*arguments, "-o", tmp_path / "result.json").stdout
    assert "Not planned, it ran as stock: nodes run in parallel" in text and "its plan takes" not in text
    document = json.loads((tmp_path / "result.json").read_text())["planned"]
    assert document["loaded_mode"] == "stock" and "parallel" in document["reason"]


def test_a_failed_run_prints_what_was_measured_and_exits_3(unimplemented: Path, tmp_path: Path) -> None:
    done = run(unimplemented, "-o", tmp_path / "result.json")
    assert done.returncode == 3
    assert "failed in phase 'load'" in done.stdout and "Telepathy" in done.stdout
    assert "import" in done.stdout and "Traceback" not in done.stdout + done.stderr
    assert "onnxmem: the process failed in phase 'load': " in done.stderr and "Telepathy" in done.stderr
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["verdict"]["kind"] == "failed"
    assert document["run_growth_bytes"] is None and "not reached" in document["unknown"]["run_growth_bytes"]


def test_a_run_that_failed_took_nothing_that_would_be_a_result(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [7])
    seven = helper.make_tensor("seven", TensorProto.INT64, [1], [7])
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "seven"], ["y"])], "g", [x], [y], [seven])
    model = tmp_path / "seven.onnx"
    onnx.save_model(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), model)
    done = run(model, "--dim", "n=5", "--no-nodes", "-o", tmp_path / "result.json")
    assert done.returncode == 3 and "onnxmem: the process failed in phase 'first run'" in done.stderr
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["run_growth_bytes"] is None and document["load_growth_bytes"] > 0
    assert document["unknown"]["run_growth_bytes"] == "the phase 'first run' was not completed"
    assert "loading took" in done.stdout and "running took" not in done.stdout


def test_names_in_models_are_text(tmp_path: Path) -> None:
    name = "[/bold] :smile: \x1b[2J"
    x, y = (helper.make_tensor_value_info(each, TensorProto.FLOAT, [1, 64]) for each in (name, "y"))
    nodes = [helper.make_node("Exp", [name], ["t"], name=name), helper.make_node("Sin", ["t"], ["y"])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), ir_version=10, opset_imports=[helper.make_opsetid("", 20)]
    )
    onnx.save_model(model, tmp_path / "[red]m.onnx")
    done = run(tmp_path / "[red]m.onnx", "--runs", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[red]m.onnx") and "\x1b" not in done.stdout
    assert "Inputs: [/bold] :smile: �[2J" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mode", "fast"], "no mode 'fast'"),
        (["--mode", "ort"], "needs an .ort file"),
        (["--shape", "z=1x1024"], "no input 'z'"),
        (["--range", "x=5"], "is not a range"),
        (["--range", "z=0:5"], "no input 'z'"),
        (["--option", "pattern"], "is not a session option"),
        (["--option", "no_such_option=1"], "no_such_option"),
        (["--memory-limit", "lots"], "is not a size"),
        (["--picture", "x.gif"], "x.gif"),
        (["--inputs", "none.npz"], "none.npz"),
    ],
)
def test_wrong_usage_exits_2(matmul: Path, arguments: list[str], said: str) -> None:
    done = run(matmul, *arguments)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr and done.stdout == ""
