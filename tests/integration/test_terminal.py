"""What a terminal shows while verbs work, and what is left of them when they are ended from outside."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
import pytest

from onnxmem import zoo
from tests.integration.commands import typed
from tests.patience import patience


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "[red]unet.onnx"
    onnx.save(zoo.build("unet", channels=4), path)
    return path


def on_a_terminal(*arguments: object) -> tuple[int, bytes, str]:
    """Run with stderr on a terminal: exit code, all that was written to it, and stdout."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "onnxmem", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as child:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65536) if select.select([ours], [], [], 60)[0] else b""
            except OSError:  # the other end was closed
                part = b""
            if not part:
                break
            written += part
        assert child.stdout is not None
        out = child.stdout.read().decode()
    os.close(ours)
    return child.returncode, written, out


def timed(*arguments: object, cwd: Path | None = None) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run it; how many seconds that took, but for those in which it was ready and others had the processor."""
    command, started = [sys.executable, "-m", "onnxmem", *map(str, arguments)], time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, cwd=cwd, stdout=out, stderr=err)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # until it is waited for, its figures can be read
        seconds = time.monotonic() - started
        waited = int(Path(f"/proc/{child.pid}/schedstat").read_text().split()[1]) / 1e9
        code = child.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read()), seconds - waited


def screen(written: bytes) -> tuple[list[str], bool]:
    """What such a terminal shows in the end, line by line, and whether there is a cursor."""
    lines, row, column, cursor = [""], 0, 0, True
    for control, text in re.findall(r"(\x1b\[[?\d;]*[a-zA-Z]|\r|\n)|([^\x1b\r\n]+)", written.decode()):
        if text:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
        elif control == "\r":
            column = 0
        elif control == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif control.endswith("A"):
            row = max(0, row - int(control[2:-1] or 1))
        elif control == "\x1b[2K":
            lines[row] = ""
        elif control in ("\x1b[?25l", "\x1b[?25h"):
            cursor = control.endswith("h")
        else:
            assert control.endswith("m"), f"what does {control!r} do?"
    return [line.rstrip() for line in lines if line.strip()], cursor


def test_measure_shows_its_phases_and_leaves_nothing_behind(model: Path) -> None:
    code, written, out = on_a_terminal("measure", model, "--shape", "1x3x64x64", "--runs", "1", "--no-nodes")
    assert code == 0
    assert "load" in out and "\x1b" not in out
    shown = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", written.decode())
    assert "measuring [red]unet.onnx" in shown
    assert any(f"measuring [red]unet.onnx: {phase} …" in shown for phase in ("import", "load", "first run"))
    assert screen(written) == ([], True)


def test_an_error_is_all_that_stays(model: Path) -> None:
    code, written, _ = on_a_terminal("measure", model, "--shape", "1x3x65x65", "--runs", "1")
    lines, cursor = screen(written)
    assert code == 3 and cursor
    assert lines and all(line.startswith(("onnxmem: ", "hint: ")) or "measuring" not in line for line in lines)


def test_elsewhere_phases_are_plain_lines(model: Path) -> None:
    done = typed("measure", model, "--shape", "1x3x64x64", "--runs", "1", "--no-nodes")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert "onnxmem: measuring [red]unet.onnx: load …" in lines and "\x1b" not in done.stderr
    assert all(line.startswith("onnxmem: measuring [red]unet.onnx: ") for line in lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("verb", ["measure", "release", "pack", "share", "compare"])
def test_a_signal_ends_it_with_nothing_left_behind(model: Path, tmp_path: Path, verb: str, number: int) -> None:
    temporary, place = tmp_path / "temporary", tmp_path / "place"
    temporary.mkdir()
    place.mkdir()
    more: dict[str, list[str]] = {
        "measure": ["--runs", "100000"],
        "release": ["--runs", "100000"],
        "pack": ["-o", "p", "--order", "best"],
        "share": ["--runs", "100000", "--modes", "stock", "--no-cold"],
        "compare": [str(model.with_name("other.onnx")), "--runs", "100000"],
    }
    model.with_name("other.onnx").write_bytes(model.read_bytes())
    command = [sys.executable, "-m", "onnxmem", verb, str(model), "--shape", "1x3x256x256", *more[verb]]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, cwd=place, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stderr is not None
        child.stderr.readline()  # it is at work
        time.sleep(0.5)
        child.send_signal(number)
        rest = child.stderr.read()
    assert child.returncode == 128 + number, rest
    assert rest.splitlines()[-1] == "onnxmem: " + ("interrupted" if number == signal.SIGINT else "ended by SIGTERM")
    # ONNX Runtime keeps a file of its own in the temporary directory.
    assert set(os.listdir(temporary)) <= {".ses"} and os.listdir(place) == []


# Ctrl-C in the moment in which this module is looked for.
_EARLY = """
import signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("command", [[sys.executable, "-m", "onnxmem"], [Path(sys.executable).with_name("onnxmem")]])
def test_ctrl_c_is_a_word_also_while_the_command_is_being_loaded(tmp_path: Path, command: list[str | Path]) -> None:
    (tmp_path / "sitecustomize.py").write_text(_EARLY)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*command, "zoo"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "onnxmem: interrupted\n")


_OF_ITS_OWN = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_terminal_that_is_closed_ends_it_with_nothing_left_behind(model: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    measure = [sys.executable, "-m", "onnxmem", "measure", str(model), "--runs", "1000000"]
    command = [sys.executable, "-c", _OF_ITS_OWN, *measure]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    ) as child:
        os.close(theirs)
        try:
            written = b""
            while b"steady runs" not in written:
                assert select.select([ours], [], [], 60)[0]
                written += os.read(ours, 65536)
            assert set(os.listdir(tmp_path)) - {".ses"}
            os.close(ours)
            assert child.wait(60) == 128 + signal.SIGHUP
        finally:
            child.kill()
    assert set(os.listdir(tmp_path)) <= {".ses"}


@pytest.mark.parametrize("verb", ["measure", "release", "share"])
def test_the_time_limit_holds_for_the_whole_command(model: Path, verb: str) -> None:
    done, seconds = timed(verb, model, "--shape", "1x3x64x64", "--runs", "1000000", "--time-limit", "3")
    # Python itself takes a moment to start and to end; under load, more.
    assert seconds < 3 + patience(1 + 4)
    assert done.returncode == 3, done.stderr
    *_, said = (line for line in done.stderr.splitlines() if not line.startswith("hint: "))
    assert "timed out" in said or "not done within 3 seconds" in said  # on a busy machine before the model is there


@pytest.mark.parametrize("typed", ["measure", "explain", "release", "trace", "pack -o package", "check --budget 1GiB"])
def test_what_had_no_time_is_not_put_down_to_its_inputs(model: Path, tmp_path: Path, typed: str) -> None:
    verb, *options = typed.split()
    done, _ = timed(verb, model, "--shape", "1x3x512x512", "--time-limit", "0.05", *options, cwd=tmp_path)
    assert done.returncode == 3 and "did not end well" not in done.stderr
    assert done.stderr.splitlines()[-1] == "hint: --time-limit SECONDS allows more"
    assert not os.listdir(tmp_path)


def test_a_measurement_ends_with_the_trials_there_was_time_for(model: Path) -> None:
    options = ["--shape", "1x3x64x64", "--json", "--runs", "1", "--repeat", "1000", "--time-limit", "5"]
    done, seconds = timed("measure", model, *options)
    assert seconds < 5 + patience(1 + 4)
    assert done.returncode == 0, done.stderr
    assert 1 <= len(json.loads(done.stdout)["repeats"]) < 100


def test_a_comparison_ends_with_the_repetitions_there_was_time_for(model: Path) -> None:
    model.with_name("other.onnx").write_bytes(model.read_bytes())
    options = ["--shape", "1x3x64x64", "--json", "--runs", "1", "--repeat", "1000", "--no-advice", "--time-limit", "8"]
    done, seconds = timed("compare", model, "other.onnx", *options, cwd=model.parent)
    assert seconds < 8 + patience(1 + 4)
    assert done.returncode == 0, done.stderr
    assert [each["failure"] for each in json.loads(done.stdout)["candidates"]] == [None, None]


def test_a_run_in_this_very_process_is_ended_too(tmp_path: Path) -> None:
    onnx.save(zoo.build("matmul", layers=200, width=512), tmp_path / "long.onnx")
    done, seconds = timed("trace", "long.onnx", "--dim", "batch=32768", "--time-limit", "3", cwd=tmp_path)
    assert seconds < 3 + patience(1 + 4)
    assert done.returncode == 3 and "not done within" in done.stderr


def test_the_old_name_of_the_limit_still_works(model: Path) -> None:
    command = [sys.executable, "-m", "onnxmem", "measure", str(model), "--runs", "1000000", "--timeout=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "Traceback" not in done.stderr


def test_no_time_at_all_is_refused_and_more_than_there_is(model: Path) -> None:
    for limit in ("0", "-1", "nan", "inf", "1e10"):
        done = typed("estimate", model, "--time-limit", limit)
        assert done.returncode == 2 and "the time limit must be more than 0 seconds" in done.stderr
