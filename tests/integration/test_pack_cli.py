"""pack, convert and share as a user types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.real_models import feeds, find
from onnxmem import zoo
from onnxmem.packing.pack import pack
from onnxmem.session.session import InferenceSession
from tests import small_models
from tests.integration.conftest import Run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "chain.onnx"
    onnx.save(zoo.build("matmul", layers=2, width=256), path)
    return path


def test_pack_verify_measure_and_refuse(run: Run, model: Path) -> None:
    code, out, err = run("pack", model, "-o", "p", "--dim", "batch=3")
    assert code == 0
    assert "Its outputs are equal to stock, bit for bit, on x 3×256." in " ".join(out.split())
    assert "packing: writing the package" in err and "hashing" in err
    code, out, err = run("pack", model, "-o", "p")
    assert (code, out) == (2, "")
    assert "--force replaces it" in err
    code, out, _ = run("pack", "-o", "p", "--verify", "--json")
    assert code == 0
    assert json.loads(out)["schema"] == "onnxmem.package/1"
    code, out, _ = run("measure", "p", "--json", "--runs", "1")
    assert code == 0
    assert json.loads(out)["verdict"]["kind"] == "ok"
    assert json.loads(out)["scenario"]["mode"] == "prepacked"  # its own
    code, out, err = run("measure", model, "--mode", "prepacked")
    assert (code, out) == (2, "") and "holds its weights itself" in err
    weights = Path("p/weights.bin")
    content = bytearray(weights.read_bytes())
    content[1000] ^= 1
    weights.write_bytes(bytes(content))
    code, _, err = run("pack", "-o", "p", "--verify")
    assert code == 3
    assert "is damaged" in err and "Traceback" not in err


@pytest.mark.parametrize("mode", ["prepacked", "ort"])
def test_verbs_that_take_a_model_file_say_which_one_of_a_package(run: Run, model: Path, mode: str) -> None:
    pack(model, Path("p"), mode=mode)
    for verb in (("estimate", "p"), ("plan", "p"), ("trace", "p"), ("convert", "p", "--to", "onnx", "-o", "m.onnx")):
        code, out, err = run(*verb)
        assert (code, out) == (2, "") and "'p' is a package" in err
        inside = mode == "prepacked" or verb[0] == "trace"
        assert ("give the model in it: p/model." if inside else "give the .onnx file it was made from") in err


def test_order_and_plans_in_text_and_json(run: Run, model: Path) -> None:
    planned = ("--plan", "x=3x256", "--plan", "5x256")
    code, out, err = run("pack", model, "-o", "p", "--dim", "batch=3", "--order", "best", *planned)
    assert code == 0, err
    assert "needs no less than 'ort-default'" in out and "the order 'ort-default'" in " ".join(out.split())
    assert "x 3×256" in out and "x 5×256" in out and "provably minimal" in out
    assert "searching the order 'best'" in err and "planning a run with x 5x256" in err
    code, out, _ = run("pack", "-o", "p", "--repack", "--json")
    document = json.loads(out)
    assert code == 0
    assert {"name", "default_bound_bytes", "bound_bytes", "verified"} <= document["order"].keys()
    assert [plan["inputs"] for plan in document["plans"]] == [{"x": [3, 256]}, {"x": [5, 256]}]
    assert all(plan["peak_bytes"] == plan["lower_bound_bytes"] > 0 for plan in document["plans"])
    assert document["verified"]["inputs"]["x"]["shape"] == [3, 256]


def test_plans_suit_all_inputs(run: Run, tmp_path: Path) -> None:
    path, files = tmp_path / "looping.onnx", []
    path.write_bytes(small_models.looping())
    for turns in (1, 4):
        files += ["--inputs", str(tmp_path / f"{turns}.npz")]
        np.savez(files[-1], x=np.ones(5000, np.float32), turns=np.array(turns))
    code, out, err = run("pack", path, "-o", tmp_path / "p", *files, "--json")
    assert code == 0, err
    assert "planning a run with x 5000" in err
    assert [plan["inputs"] for plan in json.loads(out)["plans"]] == [{"turns": [], "x": [5000]}]
    session = InferenceSession(tmp_path / "p")
    for turns in (1, 2, 3, 4, 7):
        session.run(None, {"x": np.ones(5000, np.float32), "turns": np.array(turns)})
    assert session.memory.runs_replayed == 5 and session.memory.runs_deviated == 0
    (tmp_path / "bad.npz").write_text("not arrays")
    code, out, err = run("pack", path, "-o", tmp_path / "q", *files, "--inputs", tmp_path / "bad.npz")
    assert (code, out) == (2, "") and "bad.npz' is not an .npz file" in " ".join(err.split())
    assert "packing" not in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pack"], "say where the package is"),
        (["pack", "-o", "p"], "which model to pack"),
        (["pack", "none.onnx", "-o", "p"], "there is no such file"),
        (["pack", "{model}", "-o", "p", "--mode", "stock"], "nothing to pack"),
        (["pack", "-o", "p", "--repack"], "is no package"),
        (["pack", "{model}", "-o", "p", "--order", "fastest"], "known: file, ort-default"),
        (["pack", "{model}", "-o", "p", "--order", "best", "--mode", "ort"], "an order needs a package of mode"),
        (["pack", "{model}", "-o", "p", "--plan", "x=3"], "has 2 dimensions"),
        (["pack", "{model}", "-o", "p", "--plan", "x=1x256,z=4"], "has no input 'z'"),
        (["pack", "{model}", "-o", "p", "--plan", "x=1x256,x=2x256"], "twice"),
        (["pack", "{model}", "-o", "p", "--plan", "256"], "has 2 dimensions (batchx256), but 1 was given"),
        (["pack", "{model}", "-o", "p", "--plan", "2x64,x=3x64"], "'2x64' does not say which input"),
        (["pack", "{model}", "-o", "p", "--plan", "twice"], "is not a shape"),
        (["compare", "sys:exit", "--shape", "2x64"], "'2x64' does not say which input it is the shape of"),
        (["compare", "sys:exit", "--shape", "2xN", "--sizes", "64"], "write it as input=2xN"),
        (["convert", "{model}", "--to", "zip", "-o", "x.onnx"], "there is no form"),
        (["share", "{model}", "--workers", "many"], "is not a list of numbers"),
        (["share", "{model}", "--modes", "fast"], "there is no mode 'fast'"),
    ],
)
def test_wrong_usage(run: Run, model: Path, arguments: list[str], said: str) -> None:
    code, out, err = run(*(argument.format(model=model) for argument in arguments))
    assert (code, out) == (2, "")
    assert said in err


def test_convert_and_share(run: Run, model: Path) -> None:
    code, out, _ = run("convert", model, "--to", "ort", "-o", "m.ort", "--json")
    assert code == 0
    assert json.loads(out)["files"][0]["bytes"] == Path("m.ort").stat().st_size
    code, out, err = run("share", "m.ort", "--workers", "1", "--no-cold", "--runs", "1", "--modes", "ort,ort-mapped")
    assert code == 0, err
    assert "Do this next" in out and "1 worker takes" in out


@pytest.mark.models
@pytest.mark.parametrize("key", ["rec", "ddddocr_old", "silero", "light_squeezenet"])
def test_real_models_pack(real_model: Callable[[str], Path], tmp_path: Path, key: str) -> None:
    """`rec` packs at odd addresses, `ddddocr_old` is 8-bit, `silero` all subgraphs, `light_…` has weights as inputs."""
    path = real_model(key)
    np.savez(tmp_path / "feeds.npz", **feeds(find(key)))
    made = pack(path, tmp_path / "p", inputs=tmp_path / "feeds.npz").manifest
    assert made.verified.reference == "stock"
    assert made.weights.raw > 2**20


@pytest.mark.models
def test_a_real_detector_in_a_better_order(real_model: Callable[[str], Path], tmp_path: Path) -> None:
    """PP-OCR's detector needs 44.5 MiB as it comes, and 37.5 in the best order."""
    made = pack(real_model("det"), tmp_path / "p", order="best", shapes={"x": (1, 3, 640, 640)}).manifest
    assert made.order is not None and made.order.verified
    assert made.order.bound <= 38 * 2**20 < 44 * 2**20 <= made.order.default_bound
