"""`onnxmem compare` and `load_best`: the whole way, with models small enough to be quick."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxmem import InferenceSession, compare, load_best, measure, pack
from onnxmem.errors import BudgetExceeded, ModelError, UsageError
from onnxmem.progress import Progress
from onnxmem.report.build import make_report
from onnxmem.report.charts.curves import scaling_chart
from tests.integration.commands import typed

QUICK: dict[str, Any] = {"repeat": 1, "repeat_limit": 1, "runs": 1, "advice": False}
MIB = 2**20

NETWORK = """
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, image):
        return {"answer": self.last(torch.relu(self.first(image)))}

def make():
    return Tiny()

def number():
    return 3

def greedy():
    return nn.Linear(60000, 60000)
"""

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("onnxscript") is None,
    reason="needs PyTorch: pip install onnxscript safetensors torch",
)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return typed("compare", *arguments)


@pytest.fixture(scope="module")
def different(folder: Path, matmul: Path) -> Path:
    """The same network with another weight."""
    proto = onnx.load_model(matmul)
    first = proto.graph.initializer[0]
    first.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(first) * 1.5, first.name))
    path = folder / "different.onnx"
    onnx.save_model(proto, path)
    return path


def test_the_document_has_what_others_rely_on(matmul: Path, external: Path, tmp_path: Path) -> None:
    picture, result = tmp_path / "scaling.svg", tmp_path / "result.json"
    shape = ("--shape", "x=Nx1024", "--sizes", "8,64,256")
    done = run(
        matmul,
        external,
        *shape,
        "--repeat",
        "2",
        "--repeat-limit",
        "2",
        "--runs",
        "2",
        "-o",
        result,
        "--picture",
        picture,
    )
    assert done.returncode == 0, done.stderr
    assert "The answers are " in " ".join(done.stdout.split()) and "undecided" in done.stdout
    assert all(len(line.rstrip()) <= 100 for line in done.stdout.splitlines())
    assert "matmul.onnx at 64, 2 of 2" in done.stderr
    document = json.loads(result.read_text())
    assert document["schema"] == "onnxmem.compare/1" and document["parity"]["same"]
    for candidate in document["candidates"]:
        assert candidate["file_bytes"] > 16 * MIB
        for key in (
            "load_seconds",
            "load_growth_bytes",
            "total_rss_bytes",
            "import_growth_bytes",
            "cold_start_seconds",
        ):
            assert candidate[key] > 0 and len(candidate["spread"][key]) == 2
        assert [each["shape"] for each in candidate["inputs"]] == [[8, 1024], [64, 1024], [256, 1024]]
        for each in candidate["inputs"]:
            assert isinstance(each["peak_rss_bytes"], int) and each["latency_seconds"] > 0
        parts = {part["name"]: part["bytes"] for part in candidate["breakdown"]}
        peak = parts.pop("peak")
        assert list(parts) == ["initial", "import", "load", "inference 8", "inference 64", "inference 256"]
        assert sum(parts.values()) == peak == max(each["peak_rss_bytes"] for each in candidate["inputs"])
    metrics = {row["metric"] for row in document["rows"]}
    assert {"file size", "load memory", "total memory", "peak memory", "load time", "latency"} <= metrics
    assert all(set(row["values"]) == {"matmul.onnx", "external.onnx"} for row in document["rows"])
    assert [fit["candidate"] for fit in document["fits"]] == ["matmul.onnx", "external.onnx"]
    assert all(each["extrapolated"] for fit in document["fits"] for each in fit["predictions"])
    assert {"container", "workers"} <= {each["topic"] for each in document["advice"]}
    container = next(each for each in document["advice"] if each["topic"] == "container")
    figures = container["figures"]
    assert figures["container_bytes"] >= 1.5 * figures["peak_rss_bytes"]
    assert "extrapolated" in picture.read_text()


def test_its_figures_are_those_of_measure(matmul: Path) -> None:
    result = compare([matmul, f"{matmul}+tuned"], shapes={"x": (64, 1024)}, **QUICK)
    alone = measure(matmul, shapes={"x": (64, 1024)}, runs=1, nodes=False)
    mine = result.candidates[0].document()
    assert isinstance(alone.load_growth, int)
    assert mine["load_growth_bytes"] == pytest.approx(alone.load_growth, abs=8 * MIB)


def test_other_answers_are_the_headline_and_win_nothing(matmul: Path, different: Path, tmp_path: Path) -> None:
    few = ("--repeat", "1", "--repeat-limit", "1", "--runs", "1")
    done = run(matmul, different, *few, "-o", tmp_path / "result.json")
    assert done.returncode == 3
    assert done.stdout.splitlines()[2].startswith("! The answers differ") and "different.onnx at" in done.stdout
    document = json.loads((tmp_path / "result.json").read_text())
    assert not document["parity"]["same"] and document["parity"]["max_abs"] > 0
    assert all(row["winner"] is None and not row["tied"] for row in document["rows"])


def test_who_fails_is_a_row_and_the_others_finish(matmul: Path, external: Path, tmp_path: Path) -> None:
    proto = onnx.load_model(matmul)
    proto.graph.node[0].op_type, proto.graph.node[0].domain = "Telepathy", "nowhere"
    proto.opset_import.append(onnx.helper.make_opsetid("nowhere", 1))
    onnx.save_model(proto, tmp_path / "lost.onnx")
    result = compare([matmul, tmp_path / "lost.onnx", external], shapes={"x": (4, 1024)}, **QUICK)
    good, bad, other = result.candidates
    assert good.ok and other.ok and not bad.ok
    assert bad.failure and "1 inputs" not in bad.failure
    assert result.parity.same and not result.ok
    assert make_report([result]).sections[0].summary.endswith(" lost.onnx could not be measured: see below.")
    assert scaling_chart(result.document()).to_dict()


def test_files_that_are_no_models_are_named(matmul: Path, tmp_path: Path) -> None:
    empty, garbage, archive = tmp_path / "empty.onnx", tmp_path / "garbage.onnx", tmp_path / "<b>half.pth"
    empty.write_bytes(b"")
    garbage.write_bytes(bytes(range(256)) * 20)
    archive.write_bytes(b"PK\x03\x04" + bytes(99))
    for first, second in ((empty, garbage), (matmul, archive)):
        done = run(first, second)
        assert done.returncode == 3 and done.stdout == ""
        assert all(done.stderr.count(path.name) == 1 for path in (first, second) if path != matmul)
    done = run("absent.onnx", matmul, "gone.onnx+tuned")
    assert done.returncode == 2 and "cannot read 'absent.onnx', 'gone.onnx': there are no such files" in done.stderr
    done = run(garbage, "nets:make")
    assert done.returncode == 2 and "'nets:make': there is no module 'nets'" in done.stderr
    # Who chooses among files takes what there is.
    assert load_best([garbage, matmul]).name == "matmul.onnx"
    with pytest.raises(ModelError, match=r"no candidate can be used: .*empty.onnx' .*; .*garbage.onnx'"):
        load_best([empty, garbage])


def test_further_rounds_where_nothing_is_decided(matmul: Path) -> None:
    seen: list[Progress] = []
    few: dict[str, Any] = {**QUICK, "repeat": 2, "repeat_limit": 3, "on_progress": seen.append}
    result = compare([matmul, f"{matmul}+tuned"], shapes={"x": (64, 1024)}, **few)
    # Two processes of each tell next to nothing about times.
    assert any("3 of at most 3" in progress.stage for progress in seen)
    samples = result.document()["candidates"][0]["inputs"][0]["samples"]
    assert len(samples["latency_seconds"]) == 3
    verdicts = {row["verdict"] for row in result.document()["rows"]}
    assert verdicts <= {"winner", "same", "undecided"}
    assert all((row["winner"] is None) == (row["verdict"] != "winner") for row in result.document()["rows"])
    assert result.disagreements(result) == []


def test_a_size_that_fails_leaves_the_others(reshaping: Path) -> None:
    result = compare([reshaping, f"{reshaping}+tuned"], shapes={"x": ("N", 8)}, sizes=(2, 3), **QUICK)
    first = result.candidates[0]
    assert first.at[0].failure is None and first.at[1].failure is not None
    assert first.failure is None and not first.ok
    assert first.document()["inputs"][0]["peak_rss_bytes"] and first.document()["inputs"][1]["peak_rss_bytes"] is None


def test_several_shapes_are_several_sizes(matmul: Path) -> None:
    result = compare([matmul, f"{matmul}+tuned"], shapes={"x": [(4, 1024), (2, 1024)]}, **QUICK)
    assert [size.label for size in result.sizes] == ["2x1024", "4x1024"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent.onnx"], "no such file"),
        ([], "one candidate is nothing to compare"),
        (["M", "--sizes", "big"], "not a list of sizes"),
        (["M", "--shape", "x=NxN"], "no size is given"),
        (["M", "--shape", "z=1x1024"], "no input 'z'"),
        (["M", "--weights", "M"], "there is none"),
        (["M", "--dtype", "x=complex"], "is not an input's type"),
        (["M", "--picture", "x.gif"], "x.gif"),
        (["M", "--memory-limit", "lots"], "is not a size"),
        (["M+fast"], "no mode 'fast'"),
    ],
)
def test_wrong_usage_exits_2(matmul: Path, arguments: list[str], said: str) -> None:
    named = [argument.replace("M", str(matmul), 1) if argument[0] == "M" else argument for argument in arguments]
    done = run(matmul, *named)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr and done.stdout == "" and "Traceback" not in done.stderr


def test_the_best_is_loaded_and_remembered(matmul: Path, external: Path, different: Path, tmp_path: Path) -> None:
    paths = [tmp_path / "absent.onnx", matmul, external, different]
    settings: dict[str, Any] = {"cache": tmp_path / "cache", "shapes": {"x": (4, 1024)}, "runs": 1}
    loaded = load_best(paths, **settings)
    assert loaded.name in ("matmul.onnx", "external.onnx") and "peak RSS" in loaded.why
    (answer,) = loaded.run({"x": np.ones((4, 1024), np.float32)})
    assert answer.shape == (4, 1024)
    (kept,) = (tmp_path / "cache").iterdir()
    stamp = kept.stat().st_mtime_ns
    assert load_best(paths, **settings).name == loaded.name
    assert kept.stat().st_mtime_ns == stamp and len(list((tmp_path / "cache").iterdir())) == 1
    with pytest.raises(BudgetExceeded, match="are allowed"):
        load_best(paths, budget=MIB, **settings)
    assert load_best([matmul], cache=tmp_path / "cache").why == "it is the only one there"
    with pytest.raises(UsageError, match="none of these is there"):
        load_best([tmp_path / "absent.onnx"])
    with pytest.raises(UsageError, match="no choice by 'luck'"):
        load_best([matmul], by="luck")


def test_a_package_is_loaded_by_the_session_that_was_measured(matmul: Path, tmp_path: Path) -> None:
    folder = tmp_path / "packed"
    pack(matmul, folder)
    loaded = load_best([folder])
    assert isinstance(loaded.model, InferenceSession) and loaded.model.loaded_mode == "prepacked"
    ones = {"x": np.ones((4, 1024), np.float32)}
    stock = load_best([matmul])
    np.testing.assert_array_equal(loaded.run(ones)[0], stock.run(ones)[0])
    best = load_best([matmul, folder], cache=tmp_path / "cache", shapes={"x": (4, 1024)}, runs=1)
    np.testing.assert_array_equal(best.run(ones)[0], stock.run(ones)[0])


def test_nothing_usable_says_why(unimplemented: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no candidate can be used"):
        load_best([unimplemented, f"{unimplemented}+tuned"], cache=tmp_path, runs=1)


@pytest.fixture(scope="module")
def torch_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small PyTorch network in all its forms, and weights that are not its own."""
    place = tmp_path_factory.mktemp("torch")
    (place / "tiny.py").write_text(NETWORK)
    make = """
import torch, tiny
torch.manual_seed(3)
model, image = tiny.make().eval(), torch.zeros(1, 3, 32, 32)
torch.save(model.state_dict(), "tiny.pth")
torch.save({"module." + name: value for name, value in model.state_dict().items()}, "wrapped.pth")
torch.save({"wrong": torch.zeros(3)}, "wrong.pth")
torch.save({"first.weight": torch.zeros(3), 0: torch.zeros(3)}, "nameless.pth")
class Code:
    def __reduce__(self):
        import os
        return os.system, ("touch executed",)
torch.save({"first.weight": Code()}, "evil.pth")
from safetensors.torch import save_file
save_file(model.state_dict(), "tiny.safetensors")
torch.jit.trace(model, image, strict=False).save("script.pt")
free = {2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
torch.export.save(torch.export.export(model, (image,), dynamic_shapes=(free,)), "tiny.pt2")
"""
    subprocess.run([sys.executable, "-c", make], cwd=place, check=True, capture_output=True)
    return place


@needs_torch
def test_pytorch_in_all_its_forms_and_its_twin(torch_files: Path) -> None:
    arguments = (
        "--shape",
        "image=1x3xNxN",
        "--sizes",
        "32,48",
        "--repeat",
        "1",
        "--runs",
        "1",
        "--no-advice",
        "--json",
    )
    named = ("tiny:make", "script.pt", "tiny.pt2", "--weights", "tiny.pth", "--export-to", "twins")
    # As a program: modules of the folder it is started in are found.
    command = [str(Path(sys.executable).with_name("onnxmem")), "compare", *named, *arguments]
    done = subprocess.run(command, cwd=torch_files, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    names = [candidate["name"] for candidate in document["candidates"]]
    assert names == ["tiny:make", "script.pt", "tiny.pt2", "tiny_make.onnx", "tiny.onnx"]
    assert document["parity"]["same"] and document["parity"]["max_abs"] < 1e-4
    rows = {(row["metric"], row["size"]): row for row in document["rows"]}
    assert {"tiny_make.onnx", "tiny.onnx"} <= set(rows["peak memory", "48"]["tied"])
    framework = rows["framework memory", None]["values"]
    assert framework["tiny:make"] > 2 * framework["tiny_make.onnx"]
    assert "PyTorch" in document["candidates"][0]["framework"]
    dims = onnx.load(torch_files / "twins" / "tiny_make.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == [1, 3, "height", "width"]


@needs_torch
@pytest.mark.parametrize(
    ("factory", "weights", "said"),
    [
        ("tiny:absent", None, "has no factory 'absent'"),
        ("tiny:number", None, "which is no torch.nn.Module"),
        ("tiny:make", "wrong.pth", "are not this model's: 4 missing"),
        ("tiny:make", "nameless.pth", "names weights by 'int', not by text"),
        ("tiny:make", "evil.pth", "holds more than weights: it wants to call posix.system, and nothing in"),
        ("tiny:greedy", None, "out of memory in phase 'load'"),
    ],
)
def test_pytorch_that_fails_is_a_row_with_its_reason(
    torch_files: Path, monkeypatch: pytest.MonkeyPatch, factory: str, weights: str | None, said: str
) -> None:
    monkeypatch.chdir(torch_files)
    limit = 4 * 2**30 if factory == "tiny:greedy" else None
    shapes = {"image": (1, 3, 32, 32)}
    result = compare([factory, "script.pt"], weights=weights, shapes=shapes, memory_limit=limit, **QUICK)
    failed, other = result.candidates
    assert failed.failure and said in failed.failure
    assert other.ok
    assert not (torch_files / "executed").exists()


@needs_torch
def test_a_shape_that_pytorch_cannot_take(torch_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(torch_files)
    result = compare(["tiny:make", "script.pt"], shapes={"image": (1, 4, 32, 32)}, **QUICK)
    assert all(each.failure and "first run" in each.failure for each in result.candidates)


@needs_torch
def test_the_best_of_both_worlds(torch_files: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(torch_files)
    settings: dict[str, Any] = {"shapes": {"image": (1, 3, 32, 32)}, "cache": tmp_path, "runs": 1}
    compare(["tiny:make"], weights="tiny.safetensors", export=tmp_path, shapes=settings["shapes"], **QUICK)
    twin = tmp_path / "tiny_make.onnx"
    image = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    best = load_best([twin, "tiny:make"], weights="wrapped.pth", **settings)
    assert best.name == "tiny_make.onnx"
    alone = load_best(["tiny:make"], weights="tiny.pth")
    np.testing.assert_allclose(best.run({"image": image})[0], alone.run({"image": image})[0], atol=1e-4)
