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
from onnxmem.pack import pack
from tests.integration.test_cli import Run, run

__all__ = ["run"]  # the fixture


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "chain.onnx"
    onnx.save(zoo.build("matmul", layers=2, width=256), path)
    return path


def test_pack_verify_measure_and_refuse(run: Run, model: Path) -> None:
    code, out, err = run("pack", model, "-o", "p", "--dim", "batch=3")
    assert code == 0
    assert "outputs" in out and "bit for bit to stock, on x 3×256" in out
    assert "packing" in err and "hashing" in err
    code, out, err = run("pack", model, "-o", "p")
    assert (code, out) == (2, "")
    assert "--force replaces it" in err
    code, out, _ = run("pack", "-o", "p", "--verify", "--json")
    assert code == 0
    assert json.loads(out)["schema"] == "onnxmem.package/1"
    code, out, _ = run("measure", "p", "--mode", "prepacked", "--json", "--runs", "1")
    assert code == 0
    assert json.loads(out)["verdict"]["kind"] == "ok"
    weights = Path("p/weights.bin")
    content = bytearray(weights.read_bytes())
    content[1000] ^= 1
    weights.write_bytes(bytes(content))
    code, _, err = run("pack", "-o", "p", "--verify")
    assert code == 3
    assert "is damaged" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pack"], "say where the package is"),
        (["pack", "-o", "p"], "which model to pack"),
        (["pack", "none.onnx", "-o", "p"], "there is no such file"),
        (["pack", "{model}", "-o", "p", "--mode", "stock"], "nothing to pack"),
        (["pack", "-o", "p", "--repack"], "is no package"),
        (["convert", "{model}", "--to", "zip", "-o", "x.onnx"], "there is no form"),
        (["share", "{model}", "--workers", "many"], "no list of numbers"),
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
    assert "Take ort" in out and "ort-mapped takes the least of all" in out.replace("\n", " ")


@pytest.mark.models
@pytest.mark.parametrize("key", ["rec", "ddddocr_old", "silero"])
def test_real_models_pack(real_model: Callable[[str], Path], tmp_path: Path, key: str) -> None:
    """`rec` has packed weights at odd addresses, `ddddocr_old` integers, `silero` all of them in subgraphs."""
    path = real_model(key)
    np.savez(tmp_path / "feeds.npz", **feeds(find(key)))
    made = pack(path, tmp_path / "p", inputs=tmp_path / "feeds.npz").manifest
    assert made.verified["reference"] == "stock"
    assert made.weights.packed > 2**18
