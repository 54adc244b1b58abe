"""What users type for options."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest

from onnxmem import zoo
from onnxmem.cli import parse
from onnxmem.errors import UsageError


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    onnx.save(zoo.build("unet", channels=4), folder / "one.onnx")
    onnx.save(zoo.build("transformer", layers=1, width=8, heads=2, vocabulary=16), folder / "two.onnx")
    return folder


def test_the_only_input_needs_no_name(models: Path) -> None:
    for text in ("1x3x64x64", "1×3×64×64", "1,3,64,64", "image=1x3x64x64"):
        assert parse.parse_shapes([text], models / "one.onnx") == {"image": (1, 3, 64, 64)}
    assert parse.with_name("1x3xNxN", models / "one.onnx") == "image=1x3xNxN"
    with pytest.raises(UsageError, match=r"does not say which input .* 'two.onnx' has 2") as caught:
        parse.parse_shapes(["1x8"], models / "two.onnx")
    assert caught.value.hint == "write it as tokens=1x8; it has: tokens, mask"


def test_nonsense_is_no_shape(models: Path) -> None:
    for text in ("image", "x", "1x", "axb", "-1x3", ""):
        with pytest.raises(UsageError, match="is not a shape"):
            parse.parse_shapes([text], models / "one.onnx")


def test_of_two_values_for_one_name_none_is_meant(models: Path) -> None:
    with pytest.raises(UsageError, match="the shape of input 'image' is given twice"):
        parse.parse_shapes(["1x3x64x64", "image=1x3x32x32"], models / "one.onnx")
    with pytest.raises(UsageError, match="dimension 'batch' is given twice"):
        parse.parse_dims(["batch=1", "width=8", "batch=2"])
    with pytest.raises(UsageError, match="the range of input 'ids' is given twice"):
        parse.parse_ranges(["ids=0:2", "ids=0:3"])
    with pytest.raises(UsageError, match="the type of input 'ids' is given twice"):
        parse.parse_dtypes(["ids=int64", "ids=int32"])
    with pytest.raises(UsageError, match=r"session option 'session\.x' is given twice"):
        parse.parse_options(["session.x=1", "mode=A", "session.x=0"])


def test_settings_are_told_apart_by_their_dot() -> None:
    parsed = parse.parse_options(["enable_mem_pattern=false", "log_severity_level=3", "session.x=1", "mode=A=B"])
    assert parsed == {
        "options": {"enable_mem_pattern": False, "log_severity_level": 3, "mode": "A=B"},
        "config": {"session.x": "1"},
    }


def test_counts_and_sizes() -> None:
    assert parse.parse_counts("1,2, 4") == [1, 2, 4]
    assert parse.parse_size("2KiB") == 2048 and parse.parse_size(None) is None
    with pytest.raises(UsageError, match="'1,a' is not a list of numbers"):
        parse.parse_counts("1,a")


def test_parts() -> None:
    assert parse.parse_part("10%") == parse.parse_part("0.1") == 0.1 and parse.parse_part(None) is None
    for wrong in ("much", "-1%", "nan", "inf"):
        with pytest.raises(UsageError, match="no part of anything"):
            parse.parse_part(wrong)


def test_modules_of_this_folder_are_found_but_hide_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != ""])
    with parse.modules_here():
        assert sys.path[0] == str(tmp_path)
    assert sys.path[-1] == str(tmp_path) and sys.path.count(str(tmp_path)) == 1
