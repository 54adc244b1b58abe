"""`onnxmem check` and `onnxmem history` as CI calls them: real models, budgets met and not met, and garbage."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

import onnxmem
from onnxmem.cli import main
from onnxmem.history.revision import read_commit
from onnxmem.history.store import read_entries
from onnxmem.prediction.calibration import calibration

Run = Callable[..., tuple[int, str, str]]
FAST = ("--runs", "1", "--threads", "1")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, matmul: Path) -> Run:
    """Type a command in a folder with a model: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    shutil.copy(matmul, tmp_path / "net.onnx")

    def type_it(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["onnxmem", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capfd.readouterr()
        return (stopped.value.code if isinstance(stopped.value.code, int) else 0), captured.out, captured.err

    return type_it


def test_within_and_saved_and_compared(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("check", "net.onnx", "--budget", "1GiB", *FAST, "-o", "first.json")
    assert code == 0 and "net.onnx in mode stock is within its budget" in " ".join(out.split())
    saved = json.loads((tmp_path / "first.json").read_text())
    assert saved["schema"] == "onnxmem.check/1" and saved["fits"] is True and saved["budget_bytes"] == 2**30
    # The same again has not grown; in another mode or at another size there is nothing to compare with.
    code, out, _ = run("check", "net.onnx", "--baseline", "first.json", "--tolerance", "20%", *FAST, "--json")
    (check,) = json.loads(out)["checks"]
    assert code == 0 and check["baseline"]["bytes"] == saved["checks"][0]["bytes"]
    code, _, err = run("check", "net.onnx", "--baseline", "first.json", "--mode", "tuned", *FAST)
    assert code == 2 and "is no baseline for net.onnx, tuned" in err and "a result in mode stock" in err
    code, _, err = run("check", "net.onnx", "--baseline", "first.json", "--dim", "batch=3", *FAST)
    assert code == 2 and "with inputs x 1×1024" in err


def test_growth_since_a_measurement(run: Run, tmp_path: Path) -> None:
    assert run("measure", "net.onnx", *FAST, "--no-nodes", "-o", "old.json")[0] == 0
    document = json.loads((tmp_path / "old.json").read_text())
    for trial in document["trials"]:
        for phase in trial["phases"]:
            phase["peak_rss_bytes"] = phase["peak_rss_bytes"] and phase["peak_rss_bytes"] // 2
    document["date"], document["environment"]["onnxruntime"] = "2020-02-02T00:00:00+00:00", "1.0.0"
    (tmp_path / "old.json").write_text(json.dumps(document))
    code, out, err = run("check", "net.onnx", "--baseline", "old.json", *FAST)
    said = " ".join(out.split())
    assert code == 1 and "It has grown by" in said and "(2020-02-02)" in said and "ONNX Runtime 1.0.0 →" in said
    assert "net.onnx in mode stock has grown by" in err


def test_exceeded_says_what_would_help(run: Run, unet: Path, tmp_path: Path) -> None:
    stock = onnxmem.measure(unet, runs=2, threads=1, nodes=False)
    planned = onnxmem.measure(unet, runs=2, threads=1, mode="planned", nodes=False)
    sizes = [measured.trial.highest for measured in (stock, planned)]
    assert isinstance(sizes[0], int) and isinstance(sizes[1], int)
    budget = (sizes[0] + sizes[1]) // 2
    files = ("--junit", "j.xml", "--html", "page.html")
    code, out, err = run("check", unet, "--budget", budget, "--runs", "2", "--threads", "1", "--json", *files)
    document = json.loads(out)
    (check,) = document["checks"]
    assert code == 1 and document["fits"] is False and check["excess_bytes"] == check["bytes"] - budget > 0
    assert sum(check["parts"].values()) == pytest.approx(check["figures"]["peak_bytes"], rel=0.01)
    assert check["remedies"][-1]["fits"] and check["remedies"][-1]["bytes"] <= budget
    assert f"It fits in mode {check['remedies'][-1]['mode']}, in which it takes" in check["sentence"]
    assert "unet.onnx in mode stock is over its budget by" in err
    (failure,) = ElementTree.parse(tmp_path / "j.xml").getroot().iter("failure")
    assert failure.get("message") == check["sentence"]
    assert "What the peak is made of" in (tmp_path / "page.html").read_text()


def test_by_estimate_nothing_is_run(run: Run, unet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Looked at once: while others clear the system's cache, predictions change, and two are compared here.
    monkeypatch.setattr("onnxmem.prediction.predict.calibration", cache(calibration))
    estimate = ("check", unet, "--by", "estimate", "--threads", "1", "--json")
    code, out, _ = run(*estimate, "--budget", "1GiB", "-o", "est.json")
    (check,) = json.loads(out)["checks"]
    prediction = onnxmem.predict(unet, threads=1)
    assert code == 0 and check["bytes"] == prediction.peak and "its estimated peak RSS is" in check["sentence"]
    assert check["figures"]["latency_seconds"] is None
    over = prediction.peak - 1
    code, out, _ = run(*estimate, "--budget", over)
    (check,) = json.loads(out)["checks"]
    assert code == 1 and check["excess_bytes"] == 1 and sum(check["parts"].values()) > over // 2
    assert check["remedies"][0]["bytes"] == onnxmem.predict(unet, threads=1, mode="tuned").peak
    code, _, err = run("check", unet, "--baseline", "est.json", *FAST)
    assert code == 2 and "it is a result by estimate" in err
    code, _, err = run(*estimate, "--budget", "1GiB", "--option", "enable_mem_pattern=false")
    assert code == 2 and "not estimated" in err


TABLE = """
[tool.onnxmem]
threads = 1
runs = 1
history = "memory.sqlite"
[[tool.onnxmem.check]]
model = "net.onnx"
mode = ["stock", "tuned"]
budget = "1GiB"
[[tool.onnxmem.check]]
name = "too tight"
model = "net.onnx"
figure = "loaded"
budget = "20MiB"
"""


def test_a_table_of_a_project(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text(TABLE)
    (tmp_path / "garbage.onnx").write_bytes(b"\x93garbage" * 100)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    code, out, err = run("check", "--no-advice", "--junit", "j.xml")
    assert code == 1 and "1 of 3 checks did not pass: 1 over budget." in out
    assert "checking: 2 of 3, net.onnx, tuned" in err
    lines = [line for line in err.splitlines() if line.startswith("::error ")]
    assert len(lines) == 1 and lines[0].startswith("::error file=net.onnx,title=too tight")
    # One that is no model does not keep the others from being checked.
    (tmp_path / "pyproject.toml").write_text(
        f'{TABLE}[[tool.onnxmem.check]]\nmodel = "garbage.onnx"\nbudget = "1GiB"\n'
    )
    code, out, err = run("check", "--no-advice", "--annotate", "none", "--baseline", "history", "--tolerance", "50%")
    assert code == 3 and "2 of 4 checks did not pass: 1 over budget, 1 failed." in out
    assert "garbage.onnx in mode stock could not be checked" in " ".join(out.split()) and "::error" not in err
    assert [entry.passed for entry in read_entries(tmp_path / "memory.sqlite")] == [True, True, False] * 2
    # One model of the table by its name.
    code, out, _ = run("check", "net.onnx", "--no-advice", "--json")
    assert code == 1 and len(json.loads(out)["checks"]) == 3
    code, out, _ = run("history", "memory.sqlite", "net.onnx", "--picture", "h.svg", "--json")
    document = json.loads(out)
    assert code == 0 and [len(series["points"]) for series in document["series"]] == [6, 3]
    assert "peak RSS over time" in (tmp_path / "h.svg").read_text()
    code, out, _ = run("history", "memory.sqlite")
    assert code == 0 and "9 results of 1 model" in out and "trend" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["net.onnx"], 2, "has a [tool.onnxmem] table"),
        ([], 2, "has a [tool.onnxmem] table"),
        (["--budget", "1MiB"], 2, "--budget is about one model"),
        (["net.onnx", "--budget", "lots"], 2, "is not a size"),
        (["net.onnx", "--budget", "0"], 2, "leaves nothing"),
        (["net.onnx", "--budget", "1GiB", "--figure", "weight"], 2, "no figure 'weight'"),
        (["net.onnx", "--budget", "1GiB", "--mode", "fast"], 2, "no mode 'fast'"),
        (["net.onnx", "--budget", "1GiB", "--junit", "x.txt"], 2, "x.txt"),
        (["net.onnx", "--budget", "1GiB", "--junit", "no/x.xml"], 2, "no folder 'no'"),
        (["net.onnx", "--budget", "1GiB", "--annotate", "gitlab"], 2, "no annotations for 'gitlab'"),
        (["net.onnx", "--budget", "1GiB", "--tolerance", "much"], 2, "is not a tolerance"),
        (["net.onnx", "--budget", "1GiB", "--baseline", "none.json"], 2, "cannot read 'none.json'"),
        (["net.onnx", "--budget", "1GiB", "--baseline", "net.onnx"], 2, "it is not a JSON file"),
        (["net.onnx", "--budget", "1GiB", "--baseline", "other.json"], 2, "not a result of check or measure"),
        (["net.onnx", "--budget", "1GiB", "--baseline", "broken.json"], 2, "is no baseline"),
        (["net.onnx", "--budget", "1GiB", "--baseline", "history"], 2, "there is no history to compare with"),
        (["net.onnx", "--budget", "1GiB", "--history", "net.onnx"], 2, "not an SQLite file"),
        (["net.onnx", "--budget", "1GiB", "--shape", "z=1x2"], 2, "no input 'z'"),
        (["none.onnx", "--budget", "1GiB"], 2, "no such file"),
        (["garbage.onnx", "--budget", "1GiB"], 3, "is not an ONNX model"),
        (["--config", "garbage.onnx"], 2, "is not a TOML file"),
        (["net.onnx", "--config", "none.toml", "--budget", "1GiB"], 2, "--budget is about one model, and --config"),
        (["net.onnx", "--config", "none.toml", "--baseline", "history"], 2, "cannot read 'none.toml'"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    run: Run, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    (tmp_path / "garbage.onnx").write_bytes(b"\x93garbage" * 100)
    (tmp_path / "other.json").write_text('{"schema": "onnxmem.plan/1"}')
    (tmp_path / "broken.json").write_text('{"schema": "onnxmem.measure/1", "trials": 3}')
    before = (tmp_path / "net.onnx").read_bytes()
    got, _, err = run("check", *arguments)
    assert got == code and said in err and "Traceback" not in err and "unexpected" not in err, err
    assert (tmp_path / "net.onnx").read_bytes() == before


def test_a_model_that_crashes_in_its_run_is_an_answer(run: Run, reshaping: Path) -> None:
    code, out, err = run("check", reshaping, "--budget", "1GiB", "--dim", "batch=3", *FAST)
    assert code == 3 and "could not be checked: failed in phase 'first run'" in " ".join(out.split())
    assert "could not be checked" in err
    code, out, _ = run("check", reshaping, "--budget", "1GiB", "--dim", "batch=3", *FAST, "--json")
    assert json.loads(out)["fits"] is None


def test_the_commit_is_that_of_the_repository(tmp_path: Path) -> None:
    assert read_commit(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "a").write_text("a")
    subprocess.run([*git, "add", "a"], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)
    commit = read_commit(tmp_path)
    assert commit is not None and len(commit) == 40
    (tmp_path / "a").write_text("b")
    assert read_commit(tmp_path) == f"{commit}-dirty"


WRITER = """
import sys
from pathlib import Path
from onnxmem.history.store import append
from tests.unit.history.samples import entry
for k in range(25):
    append(Path(sys.argv[1]), entry(peak=int(sys.argv[2]) * 100 + k), {})
"""


def test_two_processes_write_at_once_and_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, file, str(k)], cwd=Path(__file__).parents[2]) for k in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    peaks = sorted(entry.figures.peak for entry in read_entries(file) if isinstance(entry.figures.peak, int))
    assert peaks == sorted(k * 100 + n for k in range(3) for n in range(25))
