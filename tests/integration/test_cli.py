"""The verbs as a user types them: on good models, and on everything that can be wrong."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxmem import zoo
from onnxmem.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Type a command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def type_it(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["onnxmem", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capfd.readouterr()
        code = stopped.value.code
        return (code if isinstance(code, int) else 0), captured.out, captured.err

    return type_it


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


# Good input


def test_estimate_answers_in_the_promised_keys(run: Run, unet: Path) -> None:
    code, out, err = run("estimate", unet, "--shape", "image=1x3x64x64", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document["schema"] == "onnxmem.estimate/1"
    assert document["weights_bytes"] > 0
    activations = document["activations"]
    assert activations["naive_bytes"] >= activations["lower_bound_bytes"] > 0
    names = [strategy["name"] for strategy in activations["strategies"]]
    assert names == ["naive", "greedy_by_size", "greedy_by_breadth", "first_fit", "best_fit", "best"]
    for strategy in activations["strategies"]:
        assert strategy["peak_bytes"] >= activations["lower_bound_bytes"]
        assert strategy["optimal"] == (strategy["peak_bytes"] == activations["lower_bound_bytes"])
        assert isinstance(strategy["seconds"], float)
    assert activations["strategies"][-1]["peak_bytes"] == min(s["peak_bytes"] for s in activations["strategies"])
    assert document["formula"] is None, "all dimensions were given"


def test_estimate_without_sizes_gives_a_formula_that_is_right(run: Run, unet: Path) -> None:
    _, out, _ = run("estimate", unet, "--json")
    formula = json.loads(out)["formula"]
    assert formula["dims"] == ["batch", "height", "width"]
    peak = formula["peak_bytes"].replace("^", "**")
    for batch, height, width in ((1, 64, 64), (3, 8, 16), (2, 128, 64)):
        _, out, _ = run(
            "estimate", unet, "--dim", f"batch={batch}", "--dim", f"height={height}", "--dim", f"width={width}",
            "--alignment", 1, "--json",
        )  # fmt: skip
        expected = eval(peak, {}, {"batch": batch, "height": height, "width": width, "max": max})
        assert json.loads(out)["activations"]["lower_bound_bytes"] == expected


def test_estimate_states_what_it_assumed(run: Run, unet: Path) -> None:
    code, out, _ = run("estimate", unet)
    assert code == 0
    assert "Assumed: batch = 1, height = 224, width = 224." in out
    assert "height a multiple of 8" in out
    assert "Alive at the peak" in out


def test_estimate_lists_every_tensor(run: Run, unet: Path, tmp_path: Path) -> None:
    _, out, _ = run("estimate", unet, "--dim", "batch=1", "--tensors", "t.csv", "--json", "--no-alias", "--no-in-place")
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    document = json.loads(out)
    assert sum(int(row["size"]) for row in rows) <= document["activations"]["naive_bytes"]
    assert len(rows) == document["activations"]["count"]
    assert {"name", "dtype", "shape", "size", "lower", "upper", "offset"} <= rows[0].keys()
    assert all(int(row["offset"]) % 64 == 0 for row in rows)


def test_shapes_can_come_from_a_feeds_file(run: Run, unet: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", image=np.zeros((2, 3, 32, 64), np.float32))
    code, out, _ = run("estimate", unet, "--inputs", "feeds.npz", "--json")
    assert code == 0
    assert json.loads(out)["dims"]["given"] == {"batch": 2, "height": 32, "width": 64}


def test_plan_writes_a_plan_and_a_picture(run: Run, unet: Path, tmp_path: Path) -> None:
    code, out, _ = run("plan", unet, "--shape", "image=1x3x64x64", "-o", "plan.csv", "--picture", "map.svg", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["peak_bytes"] >= document["lower_bound_bytes"]
    assert document["strategy"] == "best"
    assert (tmp_path / "plan.csv").read_text().startswith("id,lower,upper,size,offset\n")
    assert (tmp_path / "map.svg").read_text().lstrip().startswith("<svg")
    # A plan is a problem too: reading it again gives the same bound.
    code, again, _ = run("plan", "plan.csv", "--alignment", 64, "--json")
    assert json.loads(again)["lower_bound_bytes"] == document["lower_bound_bytes"]


def test_plan_places_a_csv_within_its_capacity(run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,10\nb,1,3,20\nc,2,4,10\n")
    code, out, _ = run("plan", "p.csv", "--capacity", 30, "--json")
    assert (code, json.loads(out)["fits"], json.loads(out)["optimal"]) == (0, True, True)
    code, out, err = run("plan", "p.csv", "--capacity", 29)
    assert (code, out) == (1, "")
    assert "30 B are live at step 1" in err
    code, out, _ = run("plan", "p.csv", "--strategy", "naive", "--capacity", 35)
    assert code == 1
    assert "3 buffers take 40 B, which does not fit into the capacity of 35 B" in out


def test_a_strategy_of_ones_own_is_validated(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,10\nb,1,3,20\n")
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nfrom onnxmem import Plan\n"
        "def plan(problem): return Plan(problem, np.array([20, 0]))\n"
        "def overlapping(problem): return Plan(problem, np.zeros(2, dtype=np.int64))\n"
        "def broken(problem): return 1 / 0\n"
        "def nothing(problem): return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = run("plan", "p.csv", "--strategy", "mine:plan", "--json")
    assert (code, json.loads(out)["peak_bytes"]) == (0, 30)
    for name, complaint in (("overlapping", "overlap"), ("broken", "ZeroDivisionError"), ("nothing", "did not return")):
        code, _, err = run("plan", "p.csv", "--strategy", f"mine:{name}")
        assert code == 3
        assert complaint in err


def test_demo_opens_with_its_punch_line_and_ends_with_its_files(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("demo")
    page = (tmp_path / "onnxmem-demo" / "report.html").read_text()
    assert "Written: onnxmem-demo/report.html" in out
    assert all(heading in page for heading in ("At a glance", "Estimate of unet.onnx", "Releasing unet.onnx"))
    assert code == 0
    opening = out.splitlines()[:6]
    punch_line = r"Peak memory: [\d.]+ MiB planned, [\d.]+ MiB stock \([\d.]+% less\)\."
    assert any(re.fullmatch(punch_line, line) for line in opening), opening
    assert "The outputs are equal, bit for bit." in " ".join(out.split())
    assert (tmp_path / "onnxmem-demo" / "memory-map.svg").stat().st_size > 1000
    assert max(map(len, out.splitlines())) <= 100


def test_the_command_runs_as_a_program(unet: Path) -> None:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    command = [sys.executable, "-m", "onnxmem", "plan", str(unet), "--dim", "batch=1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


def test_a_reader_that_goes_away_is_no_error(unet: Path) -> None:
    command = f"{sys.executable} -m onnxmem estimate {unet} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# The command itself


VERBS = "demo estimate plan measure trace release compare pack convert share report zoo".split()  # noqa: SIM905


def test_help_lists_the_verbs_in_the_order_of_work_and_cuts_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("--help")
    lines = out.split("Commands:\n")[1].splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == VERBS
    assert all(len(line) <= 80 and line.endswith((".", "?")) for line in lines)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_one_time_limit(run: Run, verb: str) -> None:
    _, out, _ = run(verb, "--help")
    assert "--time-limit SECONDS" in out and "--timeout" not in out


def test_the_zoo_lists_its_models_and_writes_one(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("zoo")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(zoo.MODELS)
    assert max(map(len, out.splitlines())) <= 80
    code, out, err = run("zoo", "squeezenet", "-o", "s.onnx", "--seed", "3")
    assert (code, err) == (0, "") and out.startswith("s.onnx  ")
    assert (tmp_path / "s.onnx").read_bytes() == zoo.build("squeezenet", seed=3).SerializeToString()
    document = json.loads(run("zoo", "--json")[1])
    assert [model["name"] for model in document["models"]] == list(zoo.MODELS)
    for arguments, complaint in (
        (["lenet"], "there is no network 'lenet'"),
        (["unet", "-o", "u.pb"], "cannot write 'u.pb'"),
        (["unet", "-o", "no/u.onnx"], "there is no folder 'no'"),
        (["-o", "u.onnx"], "say which network"),
    ):
        code, out, err = run("zoo", *arguments)
        assert (code, out) == (2, "") and complaint in err


def _completions(typed: str, folder: Path) -> list[str]:
    words = typed.split(" ")
    environment = {
        **os.environ,
        "_ONNXMEM_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(words) - 1),
    }
    program = "import sys; sys.argv[0] = 'onnxmem'; from onnxmem.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("onnxmem me", {"measure"}),
        ("onnxmem measure m.onnx --mode ort-", {"ort-mapped", "ort-mapped-packed"}),
        ("onnxmem plan m.onnx --strategy greedy", {"greedy_by_size", "greedy_by_breadth"}),
        ("onnxmem plan m.onnx --order ort", {"ort-default", "ort-priority"}),
        ("onnxmem zoo res", {"resnet18", "resnet50"}),
        ("onnxmem share m.onnx --mo", {"--modes"}),
    ],
)
def test_the_shell_completes_names(tmp_path: Path, typed: str, offered: set[str]) -> None:
    assert set(_completions(typed, tmp_path)) == offered


def test_the_completion_script_can_be_shown() -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    program = "import sys; sys.argv[0] = 'onnxmem'; from onnxmem.cli import main; main()"
    command = [sys.executable, "-c", program, "--show-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "complete -o default -F _onnxmem_completion onnxmem" in done.stdout


def test_a_shape_needs_no_name_if_there_is_one_input(run: Run, unet: Path) -> None:
    code, out, _ = run("estimate", unet, "--shape", "1x3x64x64", "--json")
    assert code == 0
    assert json.loads(out)["dims"]["given"] == {"batch": 1, "height": 64, "width": 64}


def test_a_strategy_of_this_folder_is_found_by_the_installed_script(unet: Path, tmp_path: Path) -> None:
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "mine.py").write_text(
        "from onnxmem.placement.strategies.naive import plan as naive\ndef plan(problem): return naive(problem)\n"
    )
    # As the installed script runs: its own folder is the first of the path, and not the current one.
    script = tmp_path / "bin" / "onnxmem"
    script.parent.mkdir()
    script.write_text("from onnxmem.cli import main\nmain()\n")
    for verb in ("plan", "estimate"):
        command = [sys.executable, str(script), verb, str(unet), "--dim", "batch=1", "--strategy", "mypkg.mine:plan"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "mypkg.mine:plan" in done.stdout


@pytest.mark.parametrize(
    "option",
    [
        ["--shape", "x=1x3"],
        ["--dim", "batch=1"],
        ["--order", "best"],
        ["--order", "ort-default"],
        ["--view", "raw"],
        ["--level", "all"],
        ["--fix-dims"],
        ["--no-alias"],
        ["--in-place"],
        ["--count-inputs"],
        ["--inputs", "feeds.npz"],
    ],
)
def test_a_csv_refuses_what_is_about_models(run: Run, tmp_path: Path, option: list[str]) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,10\n")
    code, out, err = run("plan", "p.csv", *option)
    assert (code, out) == (2, "")
    flag = "--alias" if option == ["--no-alias"] else option[0]
    assert f"{flag} is about models, and 'p.csv' is a CSV" in err


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
from onnxmem.cli import main
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
