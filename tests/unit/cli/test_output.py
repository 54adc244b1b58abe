"""Where results may go is known before there are any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnxmem import zoo
from onnxmem.cli.output import DrawnOutput, Output, check_writable
from onnxmem.errors import UsageError
from onnxmem.packing.convert import convert


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("no/such/r.json", "there is no folder 'no/such'"),
        ("r.gif", "there is no such format"),
        ("folder.json", "it is a folder"),
        ("/proc/r.json", "cannot write '/proc/r.json'"),
    ],
)
@pytest.mark.parametrize("option", ["output", "html", "picture"])
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, complaint: str, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    suffix = ".json" if option == "output" else ".html"
    Path(f"folder{suffix}").mkdir()
    with pytest.raises(UsageError, match="cannot write") as caught:
        wanted: dict[str, Any] = {option: Path(path.replace(".json", suffix))}
        DrawnOutput(**wanted).check()
    assert complaint.replace(".json", suffix) in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        check_writable(tmp_path / "r.json", (".json",))


@pytest.mark.parametrize("link", ["itself", "symbolic", "hard"])
def test_what_is_read_is_not_overwritten(tmp_path: Path, link: str) -> None:
    read, written = tmp_path / "result.json", tmp_path / "other.json"
    read.write_text("{}")
    if link == "itself":
        written = tmp_path / "." / "result.json"
    elif link == "symbolic":
        written.symlink_to(read)
    else:
        written.hardlink_to(read)
    with pytest.raises(UsageError, match="is read by this command, and would be overwritten"):
        Output(output=written).check(None, read)
    Output(output=tmp_path / "new.json").check(None, read)


def test_a_model_is_also_its_weights(tmp_path: Path) -> None:
    onnx.save(zoo.build("matmul", layers=1, width=64), tmp_path / "m.onnx")
    files = [file.path for file in convert(tmp_path / "m.onnx", "external", tmp_path / "e.onnx").files]
    (weights,) = (file for file in files if file.suffix == ".weights")
    (tmp_path / "w.csv").hardlink_to(weights)
    with pytest.raises(UsageError, match="would be overwritten"):
        check_writable(tmp_path / "w.csv", (".csv",), (tmp_path / "e.onnx",))


def test_two_outputs_need_two_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two outputs have the same name"):
        Output(output=tmp_path / "r.html", html=tmp_path / "." / "r.html").check()


def test_nothing_is_left_behind_by_the_check(tmp_path: Path) -> None:
    DrawnOutput(output=tmp_path / "r.json", html=tmp_path / "r.html", picture=tmp_path / "r.svg").check()
    assert list(tmp_path.iterdir()) == []
