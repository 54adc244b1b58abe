"""The verbs as a user types them, on good models, and the command itself."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxmem import InferenceSession, UsageError, zoo
from tests.helpers import complaints
from tests.integration.conftest import Run


@pytest.fixture(scope="session")
def unet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "unet.onnx"
    onnx.save(zoo.build("unet", channels=4), path)
    return path


# Good input


def test_estimate_answers_in_the_promised_keys(run: Run, unet: Path) -> None:
    code, out, err = run("estimate", unet, "--shape", "image=1x3x64x64", "--json")
    document = json.loads(out)
    assert (code, complaints(err)) == (0, [])
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
    code, out, err = run("estimate", unet, "--inputs", "feeds.npz", "--shape", "2x3x64x64")
    assert (code, out) == (2, "") and "is given as 2x3x64x64, but 'feeds.npz' holds 2x3x32x64" in err


def test_plan_writes_a_plan_and_a_picture(run: Run, unet: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra 'report' is not installed")
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


def test_demo_opens_with_its_punch_line_and_ends_with_its_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vl_convert", reason="the extra 'report' is not installed")
    monkeypatch.setattr("onnxmem.cli.demo.SHAPE", (1, 3, 256, 256))  # a quarter of the work
    code, out, _ = run("demo")
    page = (tmp_path / "onnxmem-demo" / "report.html").read_text()
    assert "Written: onnxmem-demo/report.html" in out
    assert all(heading in page for heading in ("At a glance", "Estimate of unet.onnx", "Releasing unet.onnx"))
    assert code == 0
    opening = out.splitlines()[:6]
    punch_line = r"Peak memory: [\d.]+ MiB planned, [\d.]+ MiB stock \([\d.]+% less\)\."
    assert any(re.fullmatch(punch_line, line) for line in opening), opening
    assert "The outputs are equal, bit for bit." in " ".join(out.split())
    # What is printed can be typed in the folder where the demonstration was.
    assert 'onnxmem.InferenceSession("onnxmem-demo/unet.onnx", mode="planned")' in out
    fed = "onnxmem-demo/unet.onnx --shape image=1x3x256x256"
    assert f"onnxmem measure {fed} --mode planned" in page and "onnxmem measure unet.onnx" not in page
    assert "weights and packed copies where these are ?" in " ".join(out.split())
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
    assert (done.returncode, complaints(done.stderr)) == (0, [])


# The command itself


VERBS = (
    *("demo", "estimate", "plan", "fit", "measure", "explain", "trace", "release", "compare"),
    *("pack", "convert", "share", "check", "history", "report", "app", "zoo"),
)


def test_help_lists_the_verbs_in_the_order_of_work_and_cuts_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("--help")
    lines = out.split("Commands:\n")[1].splitlines()
    assert code == 0
    assert tuple(line.split()[0] for line in lines) == (*VERBS, "sweep")  # which has verbs of its own
    assert all(len(line) <= 80 and line.endswith((".", "?")) for line in lines)


@pytest.mark.parametrize("verb", [*VERBS, "sweep run"])
def test_every_verb_has_one_time_limit(run: Run, verb: str) -> None:
    _, out, _ = run(*verb.split(), "--help")
    assert "--time-limit SECONDS" in out and "--timeout" not in out


def test_the_zoo_lists_its_models_and_writes_one(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("zoo")
    assert code == 0
    listed = out.partition("what it is\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(zoo.MODELS)
    assert "Do this next" in out and max(map(len, out.splitlines())) <= 80
    code, out, err = run("zoo", "squeezenet", "-o", "s.onnx", "--seed", "3")
    assert (code, complaints(err)) == (0, []) and "s.onnx holds squeezenet with random weights: 4." in out
    assert "onnxmem estimate s.onnx" in out
    assert (tmp_path / "s.onnx").read_bytes() == zoo.build("squeezenet", seed=3).SerializeToString()
    document = json.loads(run("zoo", "--json")[1])
    assert [model["name"] for model in document["models"]] == list(zoo.MODELS)
    for arguments, complaint in (
        (["lenet"], "there is no network 'lenet'"),
        (["unet", "-o", "u.pb"], "cannot write 'u.pb'"),
        (["unet", "-o", "no/u.onnx"], "there is no folder 'no'"),
        (["-o", "u.onnx"], "say which network"),
        (["--force"], "say which network"),
    ):
        code, out, err = run("zoo", *arguments)
        assert (code, out) == (2, "") and complaint in err


def test_a_file_that_is_there_is_replaced_only_if_that_is_wanted(run: Run, tmp_path: Path) -> None:
    """By `zoo` as by `convert`: without a name it writes where a model of one's own may be."""
    (tmp_path / "lstm.onnx").write_text("trained for a week")
    code, out, err = run("zoo", "lstm")
    assert (code, out) == (2, "") and "there is a file 'lstm.onnx' already" in err and "--force replaces it" in err
    assert (tmp_path / "lstm.onnx").read_text() == "trained for a week"
    assert run("zoo", "lstm", "--force")[0] == 0
    assert (tmp_path / "lstm.onnx").read_bytes() == zoo.build("lstm").SerializeToString()


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


def test_commands_name_a_file_so_that_it_is_no_option(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is printed to be done next is pasted: a name that begins with a dash would be taken for options there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    shutil.copy(model, "-a b.onnx")
    verbs = [
        ("plan", "--dim", "batch=2", "--", "-a b.onnx"),
        ("trace", "--dim", "batch=2", "-o", "-t.csv", "--", "-a b.onnx"),
        ("check", "--dim", "batch=2", "--budget", "1KiB", "--", "-a b.onnx"),
        ("convert", "--to", "external", "-o", "-w.onnx", "--", "-a b.onnx"),
        ("pack", "-o", "-p", "--", "-a b.onnx"),
    ]
    for verb in verbs:
        _, out, err = run(*verb)
        lines = [line.strip() for line in out.splitlines() if line.strip().startswith("onnxmem ")]
        assert lines, f"{verb}: {out}{err}"
        named = [word for line in lines for word in shlex.split(line)[2:] if Path(word).name[:1] == "-" and "." in word]
        assert all(word.startswith("./-") and Path(word).exists() for word in named), lines
        assert named or "share ./-p" in lines[0]
    with pytest.raises(UsageError) as caught:
        InferenceSession("-a b.onnx", mode="mapped")
    assert "onnxmem pack './-a b.onnx' --mode mapped" in caught.value.hint


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
