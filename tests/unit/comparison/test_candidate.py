"""What a text on the command line names."""

import json
import zipfile
from pathlib import Path

import pytest

from onnxmem.comparison.candidate import parse_candidate, parse_candidates
from onnxmem.comparison.sizes import parse_open_shape, parse_sizes
from onnxmem.errors import UsageError


def archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name in names:
            made.writestr(name, "")
    return path


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "manifest.json").write_text(json.dumps({"mode": "mapped"}))
    tuned = parse_candidate(f"{tmp_path / 'm.onnx'}+tuned")
    assert (tuned.name, tuned.kind, tuned.mode) == ("m.onnx+tuned", "onnx", "tuned")
    assert parse_candidate(str(tmp_path / "pack")).mode == "mapped"
    script = parse_candidate(str(archive(tmp_path / "s.pt", "s/data.pkl", "s/code/x.py")))
    program = parse_candidate(str(archive(tmp_path / "p.pt2", "p/models/model.json")))
    made = parse_candidate("networks.enhance:make")
    by_file = parse_candidate("some/where/net.py:make")
    assert [each.source and each.source.form for each in (script, program, made)] == ["script", "program", "factory"]
    assert by_file.name == "net.py:make" and by_file.source and by_file.source.where == "some/where/net.py:make"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("absent.onnx", "no such file"),
        ("absent.onnx+tuned", "cannot read 'absent.onnx'"),
        ("m.onnx+fast", "no mode 'fast'"),
        ("weights.pth", "holds weights"),
        ("weights.safetensors", "holds weights"),
        ("s.pt+tuned", "modes are ONNX Runtime's"),
        ("folder", "without a manifest.json"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m.onnx", "weights.safetensors", "cut.pt2"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    archive(tmp_path / "weights.pth", "w/data.pkl", "w/data/0")
    archive(tmp_path / "s.pt", "s/data.pkl", "s/code/x.py")
    with pytest.raises(UsageError, match=said):
        parse_candidate(text)
    # A damaged file is no mistake of whoever asks: it is a candidate that has failed.
    assert "truncated" in (parse_candidate("cut.pt2").damage or "")


def test_names_differ(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.onnx").write_bytes(b"x")
    names = [each.name for each in parse_candidates([tmp_path / "a" / "m.onnx", tmp_path / "b" / "m.onnx"])]
    assert names == [str(tmp_path / "a" / "m.onnx"), str(tmp_path / "b" / "m.onnx")]
    same = parse_candidates([tmp_path / "a" / "m.onnx"] * 2)
    assert same[0].name != same[1].name
    with pytest.raises(UsageError, match="there is none"):
        parse_candidates([tmp_path / "a" / "m.onnx"], weights=tmp_path / "a" / "m.onnx")


def test_shapes_with_a_letter_for_the_size() -> None:
    assert parse_open_shape("x=1x3xNxN") == ("x", (1, 3, "N", "N"))
    assert parse_open_shape("a=b=1xN") == ("a=b", (1, "N"))
    assert parse_open_shape("x=1x3x4x4") == ("x", (1, 3, 4, 4))
    assert parse_sizes("256, 512,256") == (256, 512)
    for text in ("", "0", "2.5", "256;512", "-1"):
        with pytest.raises(UsageError, match="not a list of sizes"):
            parse_sizes(text)
    with pytest.raises(UsageError, match="is not a shape"):
        parse_open_shape("x=1xNxfoo")


def test_what_is_not_there_is_said_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('looking for it must not run it')\n")
    (tmp_path / "m.onnx").write_bytes(b"x")
    assert len(parse_candidates(["m.onnx", "mine:make", "mine.py:make", "json:loads"])) == 4
    with pytest.raises(UsageError) as refused:
        parse_candidates(["gone.onnx", "m.onnx", "nosuchmod.part:thing", "gone.py:make"])
    absent = "'nosuchmod.part:thing': there is no module 'nosuchmod'; 'gone.py:make': there is no file 'gone.py'"
    assert str(refused.value) == f"cannot read 'gone.onnx': there is no such file; {absent}"
