"""Files for the next process: what is read is what was written, and is the user's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxmem.session.planned import cache

CONTENT = bytes(range(256)) * 9


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "onnxmem"


def test_what_was_written_is_read(folder: Path) -> None:
    assert cache.read("plans/one") == b""
    cache.write("plans/one", CONTENT)
    cache.write("plans/two", b"")
    assert cache.read("plans/one") == CONTENT
    assert sorted(path.name for path in (folder / "plans").iterdir()) == ["one", "two"]
    assert (folder / "plans" / "one").stat().st_mode & 0o777 == 0o600
    cache.remove("plans/one")
    cache.remove("plans/one")
    assert cache.read("plans/one") == b""


def test_what_is_damaged_or_elsewhere_is_not_believed(folder: Path) -> None:
    cache.write("one", CONTENT)
    path = folder / "one"
    whole = path.read_bytes()
    for damaged in (b"", whole[:-1], whole[:20], whole + b"x", whole.replace(b"\x07", b"\x08", 1), os.urandom(2000)):
        path.write_bytes(damaged)
        assert cache.read("one") == b""
    (folder / "other").write_bytes(whole)
    assert cache.read("other") == b""
    path.write_bytes(whole)
    assert cache.read("one") == CONTENT


def test_only_the_users_own_files_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("one", CONTENT)
    path = folder / "one"
    path.rename(folder / "there")
    path.symlink_to(folder / "there")
    assert cache.read("one") == b""
    path.unlink()
    os.mkfifo(path)
    assert cache.read("one") == b""
    path.unlink()
    path.mkdir()
    assert cache.read("one") == b""
    cache.write("one", CONTENT)  # which cannot be
    path.rmdir()
    (folder / "there").rename(path)
    path.chmod(0o622)
    assert cache.read("one") == b""
    path.chmod(0o600)
    assert cache.read("one") == CONTENT
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert cache.read("one") == b""


def test_a_folder_that_cannot_be_used_is_as_good_as_an_empty_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder.write_text("a file where the folder should be")
    cache.write("one", CONTENT)
    assert cache.read("one") == b""
    folder.unlink()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        cache.write("plans/one", CONTENT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: 3)  # no more fits
        cache.write("plans/one", CONTENT)
    assert cache.read("plans/one") == b"" and list((folder / "plans").iterdir()) == []
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    cache.write("plans/one", CONTENT)
    assert cache.read("plans/one") == b"" and capfd.readouterr() == ("", "")


def test_the_oldest_go_when_there_are_too_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MOST_FILES", 8)
    for number in range(12):
        cache.write(f"plans/{number}", CONTENT)
        os.utime(folder / "plans" / str(number), (number, number))
    assert cache.read("plans/3") == CONTENT  # and is young again
    (folder / "plans" / ".tmp-of-a-killed-process").write_bytes(b"half")
    os.utime(folder / "plans" / ".tmp-of-a-killed-process", (1, 1))
    cache._make_room.cache_clear()
    cache.write("plans/12", CONTENT)
    assert sorted(int(path.name) for path in (folder / "plans").iterdir()) == [3, 8, 9, 10, 11, 12]


def test_the_machine_has_one_name() -> None:
    assert cache.machine() == cache.machine() and len(cache.machine()) == 32
    assert any("flags" in line.lower() or "features" in line.lower() for line in cache._processor())
