"""What a user can type wrongly, or has not installed: one sentence, the right code, and nothing is overwritten."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxmem import zoo
from tests.integration.conftest import Run


@pytest.fixture(scope="session")
def unet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "unet.onnx"
    onnx.save(zoo.build("unet", channels=4), path)
    return path


def chain(*, nodes: list[onnx.NodeProto] | None = None, **changes: Any) -> onnx.ModelProto:
    """A tiny model, to be spoiled."""
    graph = helper.make_graph(
        nodes if nodes is not None else [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["y"], ["z"])],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", 4])],
        **changes,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("plan m.onnx --strategy :", "strategy ':' cannot be imported"),
        ("measure m.onnx --memory-limit 8388608TiB", "a memory limit of 9223372036854775808 bytes is more"),
        (
            "sweep m.onnx --store s --cell-time-limit nan",
            "the time limit must be more than 0 seconds and at most 1e+09",
        ),
        (
            "sweep m.onnx --store s --cell-time-limit 1e10",
            "the time limit must be more than 0 seconds and at most 1e+09",
        ),
        ("sweep m.onnx --store s --verbs share --workers 0", "numbers of workers must be between 1 and 256"),
        ("sweep m.onnx --store pipe", "cannot read 'pipe': it is not a file"),
        ("sweep status pipe", "cannot read 'pipe': it is not a file"),
        ("history pipe", "cannot read 'pipe': it is not a file"),
        ("plan pipe", "cannot read 'pipe': it is not a file"),
        ("check m.onnx --budget 1GiB --history pipe", "cannot read 'pipe': it is not a file"),
        ("check m.onnx --budget 1GiB --history new.json -o new.json", "'new.json' is read by this command"),
        ("check m.onnx --budget 1GiB --history new.xml --junit new.xml", "'new.xml' is read by this command"),
        ("sweep m.onnx --store new.json -o new.json", "'new.json' is read by this command"),
        ("pack loop.onnx -o package", "cannot read 'loop.onnx': there is no such file"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(run: Run, tmp_path: Path, typed: str, said: str) -> None:
    onnx.save(chain(), tmp_path / "m.onnx")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop.onnx").symlink_to("loop.onnx")
    before = set(os.listdir(tmp_path))
    code, out, err = run(*typed.split(), "--time-limit", "60")
    assert (code, out) == (2, "") and err.startswith(f"onnxmem: {said}"), err
    assert set(os.listdir(tmp_path)) == before


def test_a_link_to_itself_is_replaced_by_the_result(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,10\n")
    (tmp_path / "loop.json").symlink_to("loop.json")
    assert run("plan", "p.csv", "-o", "loop.json")[0] == 0
    assert json.loads((tmp_path / "loop.json").read_text())["schema"] == "onnxmem.plan/1"


def test_as_much_extra_work_as_one_likes(run: Run, tmp_path: Path) -> None:
    onnx.save(zoo.build("matmul", layers=2, width=8), tmp_path / "m.onnx")
    assert run("plan", "m.onnx", "--shape", "8x8", "--tile", "--extra-work", "1e308")[0] == 0


# What cannot be written is found out before the work, and nothing that is read is overwritten


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        (verb, option)
        for verb, options in {
            "estimate": ("-o", "--html", "--tensors"),
            "plan": ("-o", "--html", "--picture"),
            "measure": ("-o", "--html", "--picture"),
            "trace": ("-o", "--html"),
            "release": ("-o", "--html", "--picture"),
            "share": ("-o", "--html", "--picture"),
            "compare": ("-o", "--html", "--picture"),
        }.items()
        for option in options
    ],
)
def test_where_results_go_is_checked_first(run: Run, tmp_path: Path, verb: str, option: str) -> None:
    """The model is not even looked at: it does not exist."""
    ending = {"-o": "json", "--html": "html", "--picture": "svg", "--tensors": "csv"}[option]
    (tmp_path / f"folder.{ending}").mkdir()
    models = ["nowhere.onnx"] * (2 if verb == "compare" else 1)
    for path, complaint in (
        (f"no/r.{ending}", "there is no folder 'no'"),
        (f"folder.{ending}", "it is a folder"),
        ("r.pdf", "there is no such format"),
        (f"/proc/r.{ending}", "No such file"),
    ):
        code, out, err = run(verb, *models, option, path)
        assert (code, out) == (2, ""), err
        assert f"cannot write '{path}': {complaint}" in err


def test_the_demo_checks_first_where_its_files_go(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "d" / "unet.onnx").mkdir(parents=True)
    for arguments, complaint in (
        (["--html", "r.pdf"], "cannot write 'r.pdf'"),
        (["--html", "no/r.html"], "there is no folder 'no'"),
        (["-o", "file"], "cannot make the folder 'file'"),
        (["-o", "d"], "cannot write 'd/unet.onnx': it is a folder"),
    ):
        code, out, err = run("demo", *arguments)
        assert (code, out) == (2, "") and complaint in err
    assert sorted(os.listdir(tmp_path)) == ["d", "file"]


@pytest.mark.parametrize("link", ["hard", "symbolic"])
def test_no_verb_overwrites_what_it_reads(run: Run, unet: Path, tmp_path: Path, link: str) -> None:
    def linked(name: str, target: Path) -> str:
        path = tmp_path / name
        path.hardlink_to(target) if link == "hard" else path.symlink_to(target)
        return name

    model = tmp_path / "m.onnx"
    model.write_bytes(unet.read_bytes())
    feeds = tmp_path / "f.npz"
    np.savez(feeds, image=np.zeros((1, 3, 32, 32), np.float32))
    saved = tmp_path / "saved.json"
    saved.write_text(run("estimate", model, "--dim", "batch=1", "--json")[1])
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,10\n")
    before = {path: path.read_bytes() for path in (model, feeds, saved, tmp_path / "p.csv")}
    for command in (
        ("estimate", model, "--tensors", linked("1.csv", model)),
        ("estimate", model, "--inputs", feeds, "-o", linked("2.json", feeds)),
        ("plan", "p.csv", "-o", "p.csv"),
        ("plan", model, "--picture", linked("3.svg", model)),
        ("measure", model, "-o", linked("4.json", model)),
        ("trace", model, "-o", linked("5.csv", model)),
        ("release", model, "--html", linked("6.html", model)),
        ("share", model, "--picture", linked("7.png", model)),
        ("compare", model, unet, "-o", linked("8.json", model)),
        ("report", saved, "-o", linked("9.md", saved)),
        ("convert", model, "--to", "onnx", "-o", "m.onnx", "--force"),
        ("convert", model, "--to", "onnx", "-o", linked("10.onnx", model), "--force"),
    ):
        code, out, err = run(*command)
        assert (code, out) == (2, ""), (command, err)
        assert "is read by this command, and would be overwritten" in err
    assert before == {path: path.read_bytes() for path in before}


def test_a_package_is_not_replaced_by_what_lies_in_it(run: Run, unet: Path) -> None:
    assert run("pack", unet, "-o", "p", "--shape", "1x3x32x32")[0] == 0
    code, _, err = run("pack", "p/model.onnx", "-o", "p", "--force")
    assert code == 2 and "'p/model.onnx' lies in 'p', which would be replaced" in err
    assert run("pack", "-o", "p", "--verify")[0] == 0


# Without optional packages


BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("altair", "vl_convert", "jinja2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
import onnxmem.cli.demo
from onnxmem.cli import main
onnxmem.cli.demo.SHAPE = (1, 3, 64, 64)  # a little of the work
main()
"""


def without_report_extra(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCK, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize("option", [("--html", "r.html"), ("-o", "r.html"), ("--picture", "r.svg")])
def test_a_missing_package_is_named_before_the_work(unet: Path, tmp_path: Path, option: tuple[str, str]) -> None:
    done = without_report_extra("plan", unet, "--dim", "batch=1", *option, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "onnxmem: this needs the package 'altair', which is not installed\n"
        "hint: pip install altair jinja2 vl-convert-python\n"
    )


def test_text_and_markdown_need_no_extra(unet: Path, tmp_path: Path) -> None:
    done = without_report_extra("plan", unet, "--dim", "batch=1", "-o", "r.md", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.md").read_text().startswith("# ")


def test_the_demo_does_what_it_can_without(tmp_path: Path) -> None:
    done = without_report_extra("demo", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hint: pip install altair jinja2 vl-convert-python" in done.stderr
    document = json.loads(done.stdout)
    schemas = [each["schema"] for each in document["documents"]]
    assert schemas == ["onnxmem.estimate/1", "onnxmem.measure/1", "onnxmem.measure/1", "onnxmem.release/1"]
    assert document["files"] == ["onnxmem-demo/unet.onnx"]
    assert os.listdir(tmp_path / "onnxmem-demo") == ["unet.onnx"]


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is installed")
def test_a_candidate_that_failed_is_named_with_what_it_lacks(run: Run, unet: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def make():\n    import torch\n    return torch.nn.ReLU()\n")
    settings = ("--runs", "1", "--repeat", "1", "--repeat-limit", "1", "--no-advice")
    code, out, err = run("compare", unet, "net:make", "--shape", "1x3x32x32", *settings)
    assert code == 3 and "unet.onnx" in out
    assert err.endswith(
        "onnxmem: net:make: this needs the package 'torch', which is not installed\n"
        "hint: pip install onnxscript safetensors torch\n"
    )


# Bad input: one sentence, the right code, nothing written


def spoiled() -> dict[str, tuple[bytes, int, str]]:
    relu, exp = helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["y"], ["z"])
    good = chain().SerializeToString()
    return {
        "not a model": (b"PK\x03\x04 something else entirely", 3, "is not an ONNX model"),
        "text": (b"hello\n", 3, "is not an ONNX model"),
        "nothing": (b"", 3, "is not an ONNX model"),
        "truncated": (good[: len(good) // 2], 3, "is not an ONNX model"),
        "lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", 3, "Git LFS pointer"),
        "ort format": (b"\x00\x00\x00\x00ORTM" + bytes(64), 3, "ORT format"),
        "empty graph": (chain(nodes=[]).SerializeToString(), 3, "empty graph"),
        "cycle": (
            chain(
                nodes=[helper.make_node("Add", ["x", "z"], ["y"], name="loop"), helper.make_node("Exp", ["y"], ["z"])]
            ).SerializeToString(),
            3,
            "cycle",
        ),
        "duplicate names": (chain(nodes=[relu, exp, relu]).SerializeToString(), 3, "defined twice"),
        "undefined name": (
            chain(nodes=[helper.make_node("Exp", ["missing"], ["z"])]).SerializeToString(),
            3,
            "which nothing produces",
        ),
    }


@pytest.mark.parametrize("case", spoiled())
@pytest.mark.parametrize("verb", ["estimate", "plan"])
def test_a_bad_model_is_one_sentence(run: Run, tmp_path: Path, case: str, verb: str) -> None:
    content, expected_code, complaint = spoiled()[case]
    (tmp_path / "bad.onnx").write_bytes(content)
    extra = ["-o", "plan.csv", "--picture", "map.svg"] if verb == "plan" else ["--tensors", "t.csv"]
    code, out, err = run(verb, "bad.onnx", *extra)
    assert (code, out) == (expected_code, "")
    first, *rest = err.splitlines()
    assert first.startswith("onnxmem: ")
    assert complaint in first
    assert all(line.startswith("hint: ") for line in rest)
    assert os.listdir(tmp_path) == ["bad.onnx"], "nothing may be written"


@pytest.mark.parametrize(
    ("arguments", "complaint", "hint"),
    [
        (["--dim", "hight=3"], "no free dimension 'hight'", "batch, height, width"),
        (["--shape", "img=1x3x8x8"], "no input 'img'", "image"),
        (["--shape", "image=1x4x8x8"], "fixed at 3, not 4", ""),
        (["--shape", "image=1x3x8"], "has 4 dimensions", ""),
        (["--shape", "image"], "is not a shape", "input=1x3x640x640"),
        (["--dim", "batch=-1"], "is not a dimension", "name=8"),
        (["--dim", "batch=2", "--shape", "image=1x3x8x8"], "given as both", ""),
        (["--dim", "batch=2", "--dim", "batch=3"], "dimension 'batch' is given twice", ""),
        (["--order", "alphabetical"], "no order 'alphabetical'", "ort-default"),
        (["--view", "x-ray"], "no view 'x-ray'", "raw, optimized"),
        (["--level", "999"], "no optimization level '999'", "extended"),
        (["--inputs", "nowhere.npz"], "cannot read 'nowhere.npz'", ""),
        (["--alignment", "0"], "alignment must be at least 1", ""),
        (["--strategy", "magic"], "no strategy 'magic'", "greedy_by_size"),
        (["--strategy", "no.such:thing"], "cannot be imported", ""),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(
    run: Run, unet: Path, arguments: list[str], complaint: str, hint: str
) -> None:
    code, out, err = run("plan", unet, *arguments, "-o", "plan.csv")
    assert (code, out) == (2, "")
    assert complaint in err.splitlines()[0]
    assert hint in err
    assert not Path("plan.csv").exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "no column 'id'"),
        ("id,lower,upper\na,0,1\n", "no column 'size'"),
        ("id,lower,upper,size\na,0,1\n", "line 2 has 3 fields instead of 4"),
        ("id,lower,upper,size\na,0,1,ten\n", "line 2: 'ten' is not a 64-bit integer"),
        ("id,lower,upper,size\na,0,1,-5\n", "negative size"),
        ("id,lower,upper,size\na,2,1,5\n", "empty lifetime"),
        ("id,lower,upper,size\na,0,1,5\na,0,1,5\n", "appears twice"),
        ("id,lower,upper,size\na,0,1,99999999999999999999\n", "not a 64-bit integer"),
    ],
)
def test_a_malformed_csv_is_one_sentence(run: Run, tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "bad.csv").write_text(content)
    code, out, err = run("plan", "bad.csv", "-o", "plan.csv")
    assert (code, out) == (3, "")
    assert complaint in err.splitlines()[0]
    assert os.listdir(tmp_path) == ["bad.csv"]


def test_files_that_are_not_there_or_not_writable(run: Run, unet: Path, tmp_path: Path) -> None:
    for arguments in (["estimate", "nowhere.onnx"], ["plan", "nowhere.csv"], ["estimate", tmp_path]):
        code, _, err = run(*arguments)
        assert code == 2
        assert "cannot read" in err
    code, _, err = run("plan", unet, "-o", "no/such/folder/plan.csv")
    assert code == 2
    assert "cannot write" in err
    code, _, err = run("plan", unet, "--picture", "map.gif")
    assert code == 2


def test_an_operator_that_onnx_runtime_lacks_falls_back_to_the_raw_graph(run: Run, tmp_path: Path) -> None:
    custom = helper.make_node("Mystery", ["x"], ["y"], domain="com.example")
    model = chain(nodes=[custom, helper.make_node("Exp", ["y"], ["z"])])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    onnx.save(model, tmp_path / "custom.onnx")
    code, out, _ = run("estimate", "custom.onnx", "--dim", "N=2", "--json")
    document = json.loads(out)
    assert (code, document["view"]) == (0, "raw")
    assert "cannot load" in document["notes"][0]
    assert [entry["name"] for entry in document["activations"]["unknown"]] == ["y"]
    code, _, err = run("estimate", "custom.onnx", "--view", "optimized")
    assert code == 3
    assert "ONNX Runtime cannot load the model" in err


def test_debug_shows_where_an_error_comes_from() -> None:
    command = [sys.executable, "-m", "onnxmem", "estimate", "nowhere.onnx", "--debug"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
