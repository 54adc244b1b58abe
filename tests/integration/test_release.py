"""Releasing models: the ladder in the library and on the command line, and rounds of it in one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxmem
from benchmarks.load_modes import LOAD_MODES, model_files
from benchmarks.release import cycles, ladder_of
from onnxmem import zoo
from onnxmem.errors import ModelError, UsageError
from onnxmem.progress import Progress
from onnxmem.releasing.ladder import Ladder, explain_release, release_ladder
from onnxmem.releasing.rungs import CLOSE, EXIT, RUNGS, SHRINK, TRIM
from onnxmem.report.charts.bars import ladder_summary
from onnxmem.unknown import Unknown
from tests.helpers import complaints
from tests.integration.commands import typed

MIB = 2**20


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """160 MiB of weights in every form: large enough that the runtime's own 1.5 MiB are less than a percent."""
    with model_files(layers=10) as made:
        yield made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    onnx.save(zoo.build("matmul", layers=2, width=256), path)
    return path


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return typed(*arguments, columns=80)


def freed(ladder: Ladder) -> dict[str, int]:
    return {step.name: step.freed for step in ladder.steps if isinstance(step.freed, int)}


@pytest.mark.parametrize("name", ["inline", "external", ".ort", ".ort mapped", ".ort mapped, no prepacking"])
def test_all_but_little_comes_back_however_it_was_loaded(folder: Path, name: str) -> None:
    mode = next(mode for mode in LOAD_MODES if mode.name == name)
    ladder = ladder_of(mode, folder, batch=8)
    assert [step.name for step in ladder.steps] == [*RUNGS, EXIT]
    assert isinstance(ladder.released_fraction, float) and ladder.released_fraction >= 0.98
    assert isinstance(ladder.growth, int) and ladder.growth > 160 * MIB
    gained = freed(ladder)
    if mode.packs:
        assert isinstance(ladder.released_fraction_anon, float) and ladder.released_fraction_anon >= 0.98
    if name == "inline":
        # Not the session is to blame but the C library, which keeps most of what it frees.
        assert gained[TRIM] > 50 * MIB
    if name == "external" or "mapped" in name:
        assert gained[CLOSE] >= 160 * MIB
    if "mapped" in name:
        mapped = [step.model_mappings for step in (ladder.before, ladder.full, ladder.last)]
        assert mapped == [0, 1, 0]
    last = ladder.steps[-1].reading
    assert (last.rss, last.anon, last.file, last.virtual) == (0, 0, 0, 0)


def test_an_arena_can_be_shrunk_while_the_session_lives(tmp_path: Path) -> None:
    path = tmp_path / "unet.onnx"
    onnx.save(zoo.build("unet"), path)
    ladder = release_ladder(path, shapes={"image": (1, 3, 256, 256)}, runs=2)
    gained = freed(ladder)
    assert gained[SHRINK] > gained[CLOSE] and gained[SHRINK] > 50 * MIB
    assert ladder.released.clear_cache is False
    without = release_ladder(path, shapes={"image": (1, 3, 256, 256)}, runs=1, options={"enable_cpu_mem_arena": False})
    assert without.released.shrinkage and "could not be shrunk" in " ".join(explain_release(without))


def test_isolation_gives_back_everything(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "inline.onnx"
    shown = onnxmem.demonstrate_actual_onnx_memory_release(path, dims={"batch": 8}, runs=1)
    assert capsys.readouterr().out == ""
    isolation = shown.isolation
    assert isinstance(isolation.child.anon, int) and isolation.child.anon > 160 * MIB
    assert isinstance(isolation.returned_fraction, float) and isolation.returned_fraction > 0.995
    assert "100" in shown.verdict or "99." in shown.verdict
    assert "inline.onnx brought" in str(shown)


def test_tracking_in_this_process_is_honest(folder: Path) -> None:
    # In a process of its own: what other tests left in the heap of this one would come and go beside it.
    script = (
        "import json, sys, onnxmem\n"
        "t = onnxmem.track_onnx_runtime_memory_release(sys.argv[1], dims={'batch': 8}, verbose=True)\n"
        "facts = [t.returned_fraction, t.freed_by_file_size, t.verdict, t.session.providers, t.file_bytes]\n"
        "print(json.dumps([str(t), *facts]))\n"
    )
    command = [sys.executable, "-c", script, str(folder / "external.onnx")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text, returned, freed, verdict, providers, size = json.loads(printed.splitlines()[-1])
    assert text in printed
    assert returned > 0.98
    assert freed > 0.9
    assert verdict.startswith("Released: ")
    assert providers == ["CPUExecutionProvider"]
    assert size > 160 * MIB, "with its external weights"


def test_tracking_a_session_of_the_callers_does_not_pretend(small: Path) -> None:
    import onnxruntime as ort  # noqa: PLC0415

    session = ort.InferenceSession(str(small), providers=["CPUExecutionProvider"])
    tracked = onnxmem.track_onnx_runtime_memory_release(session)
    assert isinstance(tracked.returned_fraction, Unknown) and "before the tracking began" in tracked.verdict
    assert tracked.session.model == "small.onnx" and tracked.file_bytes == small.stat().st_size
    assert "Nothing was released" in onnxmem.track_onnx_runtime_memory_release(session).verdict
    session = ort.InferenceSession(str(small), providers=["CPUExecutionProvider"])
    kept = session.run(None, {"x": np.ones((1, 256), np.float32)})
    assert "kept[0]" in onnxmem.track_onnx_runtime_memory_release(session).verdict and kept


def test_an_isolated_session_is_closed(small: Path) -> None:
    session = onnxmem.IsolatedSession(small)
    assert not onnxmem.release(session).already and session.closed
    assert onnxmem.release(session).already


def test_rounds_of_load_run_and_release_do_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(zoo.build("matmul", layers=1, width=2048), path)
    sizes = cycles(path, 25)
    assert sizes[-1] <= sizes[0] * 1.02


def test_the_command_prints_a_table_json_and_a_picture(folder: Path, tmp_path: Path) -> None:
    picture = tmp_path / "waterfall.svg"
    done = command("release", folder / "inline.onnx", "--dim", "batch=4", "--json", "--picture", picture)
    assert done.returncode == 0 and not complaints(done.stderr)
    document = json.loads(done.stdout)
    assert document["schema"] == "onnxmem.release/1" and document["released_fraction"] >= 0.98
    keys = {"name", "rss_bytes", "anon_bytes", "file_bytes", "virtual_bytes", "freed_bytes"}
    assert all(keys <= step.keys() for step in document["steps"])
    assert [step["name"] for step in document["steps"]] == [*RUNGS, EXIT]
    assert not document["released"]["clear_cache"] and document["inputs"]["x"]["shape"] == [4, 2048]
    drawn = " ".join(element.text or "" for element in ElementTree.parse(picture).iter())
    assert all(name in drawn for name in (*RUNGS, EXIT, "loaded and run", "given back by this step"))


def test_the_text_explains_this_model(small: Path) -> None:
    done = command("release", small)
    assert done.returncode == 0
    said = " ".join(done.stdout.split())
    for part in ("small.onnx brought", "trim the allocator", "there is no clear_cache()", "Ending the process", "RSS"):
        assert part in said
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.onnx"], 2, "there is no such file"),
        (["{small}", "--shape", "z=1x2"], 2, "has no input 'z'"),
        (["{small}", "--shape", "x=1x7"], 2, "fixed at 256"),
        (["{small}", "--dim", "depth=3"], 2, "no free dimension 'depth'"),
        (["{small}", "--mode", "magic"], 2, "no mode 'magic'"),
        (["{small}", "--option", "speed=9"], 2, "speed"),
        (["{small}", "--picture", "x.pdf"], 2, "there is no such format"),
        (["{broken}"], 3, "not an ONNX model"),
    ],
)
def test_bad_requests_are_one_sentence(
    small: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x00\x01 no model")
    done = command("release", *(text.format(small=small, broken=broken) for text in arguments))
    assert done.returncode == code and done.stdout == ""
    first, *rest = complaints(done.stderr)
    assert message in first and first.startswith("onnxmem: ") and all(line.startswith("hint: ") for line in rest)


@pytest.mark.parametrize("phase", ["load", "arena shrinkage", "trim the allocator"])
def test_a_killed_child_is_an_error_that_says_where(small: Path, phase: str) -> None:
    def kill(progress: Progress) -> None:
        if progress.stage == phase and progress.pid:
            os.kill(progress.pid, signal.SIGKILL)

    with pytest.raises(ModelError, match=f"killed in phase '{phase}'") as caught:
        release_ladder(small, on_progress=kill)
    assert caught.value.exit_code == 3


def test_feeds_that_cannot_be_read_are_refused(tmp_path: Path, small: Path) -> None:
    bad = tmp_path / "feeds.npz"
    bad.write_text("no arrays")
    with pytest.raises(UsageError, match=r"not an \.npz file"):
        release_ladder(small, inputs=bad)


def test_a_model_that_fails_to_run_says_so(tmp_path: Path) -> None:
    path = tmp_path / "fails.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [name]) for name in "xy")
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [3])
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "fails", [x], [y], [shape])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    with pytest.raises(ModelError, match="failed in phase 'first run'"):
        release_ladder(path, dims={"x": 4})
    done = command("release", path, "--dim", "x=4")
    assert done.returncode == 3 and "Traceback" not in done.stderr


def test_the_summary_names_what_was_measured(small: Path) -> None:
    lines = ladder_summary(release_ladder(small, runs=1).document())
    assert "resident memory" in lines[0] and "ONNX Runtime" in lines[1]
