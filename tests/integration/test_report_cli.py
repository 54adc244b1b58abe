"""`onnxmem report` and `--html` as a user types them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import onnx
import pytest
import typer.main

from onnxmem import zoo
from onnxmem.cli import app, main

# These write files; a page would say nothing about memory.
WITHOUT_PAGE = {"app", "convert", "pack", "zoo"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(zoo.build("unet", channels=4), path)
    return path


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    sys.argv = ["onnxmem", *map(str, arguments)]
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def test_saved_results_become_one_report(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = ("--shape", "image=1x3x64x64")
    saved = []
    for verb in (("estimate",), ("plan",), ("measure", "--runs", 1), ("release", "--runs", 1)):
        page = tmp_path / f"{verb[0]}.html"
        code, out, _ = command(capsys, verb[0], model, *size, *verb[1:], "--html", page, "--json")
        assert code == 0 and page.read_text().startswith("<!DOCTYPE html>")
        saved.append(tmp_path / f"{verb[0]}.json")
        saved[-1].write_text(out)
    for suffix in (".html", ".md", ".txt", ".json"):
        assert command(capsys, "report", *saved, "-o", tmp_path / f"report{suffix}", "--title", "Mine")[0] == 0
    text = (tmp_path / "report.txt").read_text()
    assert text.startswith("Mine\n====\n") and "net.onnx in mode stock, measured" in text
    code, out, _ = command(capsys, "report", tmp_path / "report.json", "--title", "Mine")
    assert code == 0 and out == text
    monkeypatch.setattr(sys, "stdin", io.StringIO(saved[0].read_text()))
    code, out, _ = command(capsys, "report", "-", "--json")
    assert code == 0 and json.loads(out)["documents"] == [json.loads(saved[0].read_text())]


@pytest.mark.parametrize("verb", sorted(typer.main.get_command(app).commands.keys() - WITHOUT_PAGE))  # type: ignore[attr-defined]
def test_every_verb_writes_a_page(verb: str) -> None:
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    options = getattr(command, "commands", {"run": command})["run"].params
    assert any("--html" in option.opts for option in options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "missing.json"), "cannot read 'missing.json'"),
        (("report", "net.onnx"), "'net.onnx' is not a JSON file"),
        (("report", "net.onnx", "-o", "report.pdf"), "cannot write 'report.pdf': there is no such format"),
        (("report", "net.onnx", "-o", "nowhere/report.md"), "there is no folder 'nowhere'"),
        (("estimate", "net.onnx", "--html", "report.txt"), "cannot write 'report.txt': there is no such format"),
        (("measure", "net.onnx", "--html", "no/report.html"), "there is no folder 'no'"),
    ],
)
def test_wrong_requests_are_refused_before_any_work(
    model: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(model.parent)
    code, out, err = command(capsys, *arguments)
    assert code == 2 and out == "" and message in err
