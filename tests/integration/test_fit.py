"""What fits into a budget, on the command line and under a real limit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import onnx
import pytest

import onnxmem
from onnxmem import zoo
from onnxmem.fitting.axis import Given
from onnxmem.fitting.fitting import Fitting
from tests.integration.commands import typed

MIB = 2**20


@pytest.fixture(scope="module")
def unet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "unet.onnx"
    onnx.save(zoo.build("unet", channels=8), path)
    return path


def onnxmem_fit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return typed("fit", *arguments)


def test_the_answer_comes_first_and_the_result_is_saved(unet: Path, tmp_path: Path) -> None:
    saved, page = tmp_path / "fit.json", tmp_path / "fit.html"
    image = ("--dim", "height=64..1024:64", "--dim", "width=height")
    run = onnxmem_fit(unet, "--budget", "160MiB", *image, "--threads", "1", "-o", saved, "--html", page)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[2].startswith("Largest height = width that fits 160.0 MiB: ")
    # Where lines are broken depends on how long the model's path is.
    assert "--mode planned" in " ".join(run.stdout.split()) and "Traceback" not in run.stderr
    result = Fitting.from_document(json.loads(saved.read_text()))
    sizes = {mode.mode: mode.size or 0 for mode in result.answers[0].modes}
    assert sizes["planned"] > sizes["stock"] > 0
    assert all(size % 64 == 0 for size in sizes.values())
    assert "budget 160.0 MiB" in page.read_text()


def test_without_a_budget_there_is_a_curve_for_each_mode(unet: Path) -> None:
    image = ("--dim", "height=64..512:32", "--dim", "width=height", "--mode", "stock", "--mode", "planned")
    run = onnxmem_fit(unet, *image, "--threads", "1", "--json")
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert document["budget_bytes"] is None and document["fits"]
    (answer,) = document["answers"]
    assert answer["axis"]["names"] == ["height", "width"] and [mode["mode"] for mode in answer["modes"]] == [
        "stock",
        "planned",
    ]
    for mode in answer["modes"]:
        sizes = [point["size"] for point in mode["points"]]
        assert sizes[0] == 64 and sizes[-1] == 512 and len(sizes) > 10 and all(size % 32 == 0 for size in sizes)
        for point in (mode["points"][0], mode["points"][-1]):
            dims = dict.fromkeys(("height", "width"), point["size"])
            assert point["bytes"] == onnxmem.predict(unet, mode=mode["mode"], dims=dims, threads=1).peak
            assert point["needed_bytes"] > point["bytes"] and point["exact"]
    assert Fitting.from_document(document).document() == document


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--verify",), 2, "without a budget there is nothing to verify"),
        (("--budget", "10MiB"), 1, "nothing fits into 10.0 MiB: the least is"),
        (("--budget", "lots"), 2, "'lots' is not a size"),
        (("--budget", "1GiB", "--dim", "depth=1..4"), 2, "no free dimension 'depth'"),
        (("--budget", "1GiB", "--mode", "ort"), 2, "mode 'ort' cannot be predicted"),
        (("--budget", "1GiB", "-o", "/nowhere/fit.json"), 2, "there is no folder"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(model: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    run = onnxmem_fit(model, *arguments)
    assert run.returncode == code
    assert said in run.stderr and "Traceback" not in run.stderr


def test_a_file_that_is_no_model_is_not_fitted(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    assert onnxmem_fit(broken, "--budget", "1GiB").returncode == 3


def test_what_was_verified_holds_under_the_limit_and_what_is_larger_does_not(unet: Path) -> None:
    budget = 150 * MIB
    dims: dict[str, Given] = {"height": range(64, 1025, 64), "width": "height"}
    result = onnxmem.fit(unet, budget, dims=dims, modes=["tuned"], threads=1, verify=True)
    (mode,) = result.answers[0].modes
    assert mode.verified is not None and mode.holds is not None
    assert mode.verified.limited_by in ("cgroup memory.max", "RLIMIT_DATA")
    again = onnxmem.measure(
        unet,
        dims={"height": mode.holds, "width": mode.holds},
        mode="tuned",
        threads=1,
        memory_limit=budget,
        nodes=False,
    )
    assert again.verdict.ok
    assert isinstance(again.trial.highest, int) and again.trial.highest <= budget
    larger = mode.holds + 64
    more = onnxmem.measure(unet, dims={"height": larger, "width": larger}, mode="tuned", threads=1, nodes=False)
    assert isinstance(more.trial.highest, int) and more.trial.highest > 0.9 * budget


def test_several_workers_are_measured_together(model: Path) -> None:
    result = onnxmem.fit(model, 200 * MIB, dims={"batch": 2}, modes=["prepacked"], workers=2, threads=1, verify=True)
    (mode,) = result.answers[0].modes
    assert mode.verified is not None and mode.holds is not None
    attempt = mode.verified.attempts[-1]
    assert attempt.peak is not None and attempt.peak <= 200 * MIB
    # Other processes may share the libraries, too: then their part of them is in none of these.
    assert 40 * MIB < attempt.peak < 1.1 * mode.smallest.bytes
