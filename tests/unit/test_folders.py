"""Temporary folders: private, gone afterwards, and what a killed process left is cleared by the next call."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from onnxmem.errors import UsageError
from onnxmem.files import clear_left_behind
from onnxmem.folders import private_cache, replacing_folder, temporary_file, temporary_folder
from onnxmem.session.planned import cache as plans
from onnxmem.session.planned import profile
from onnxmem.session.tile_cache import tiled_package


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory of one's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_private_and_gone_afterwards(temporary: Path) -> None:
    with temporary_folder() as folder:
        (folder / "a").write_text("b")
        assert folder.parent == temporary and folder.stat().st_mode & 0o777 == 0o700
    assert not list(temporary.iterdir())
    with pytest.raises(KeyboardInterrupt), temporary_folder() as folder:
        raise KeyboardInterrupt
    assert not list(temporary.iterdir())


def test_what_was_left_is_cleared_and_what_is_in_use_is_not(temporary: Path) -> None:
    (temporary / "onnxmem.tmp-killed").mkdir()
    (temporary / "onnxmem.tmp-killed" / "weights").write_text("large")
    (temporary / "onnxmem-mine").mkdir()
    with temporary_folder() as first, temporary_folder() as second:
        assert {path.name for path in temporary.iterdir()} == {first.name, second.name, "onnxmem-mine"}
    assert [path.name for path in temporary.iterdir()] == ["onnxmem-mine"]


@pytest.mark.parametrize("when", ["made", "opened", "locked"])
def test_another_process_may_clear_a_folder_before_it_is_locked(
    when: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(temporary))
    module, name = {"made": (os, "mkdir"), "opened": (os, "open"), "locked": (fcntl, "flock")}[when]
    really, tried = getattr(module, name), 0

    def cleared_at_once(*arguments: object, **keywords: object) -> object:
        nonlocal tried
        found = really(*arguments, **keywords)
        if tried < 3 and (left := next((path for path in temporary.iterdir() if path.is_dir()), None)):
            tried += 1
            if tried < 3:
                left.rmdir()
        return found

    monkeypatch.setattr(module, name, cleared_at_once)
    with temporary_folder() as folder:
        assert tried == 3 and folder.is_dir()
    tried = 0
    with profile._private_folder() as private:
        assert tried == 3 and private is not None and Path(private).is_dir()
    tried = 0
    with pytest.raises(UsageError, match="another process is writing"), replacing_folder(temporary / "package"):
        pass


def test_sessions_are_profiled_while_another_process_clears(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(temporary))
    really, ended = os.mkdir, []

    def looked_at(path: str, mode: int) -> None:
        """It has the folder open, and locked for a moment, to see whether somebody uses it."""
        really(path, mode)
        lock = os.open(path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        ended.append(threading.Timer(0.1, os.close, [lock]))
        ended[0].start()

    monkeypatch.setattr(os, "mkdir", looked_at)
    with profile._private_folder() as private:
        assert private is not None and Path(private).is_dir()
    ended[0].join()
    assert os.listdir(temporary) == []


def test_what_has_the_name_of_what_was_cleared_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes clear the same folder, and whoever was about to use it makes it once more in between."""
    left, really = temporary / "onnxmem.tmp-left", os.open
    left.mkdir()

    def cleared_and_made_again(path: str | Path, *arguments: int) -> int:
        handle = really(path, *arguments)
        if path == left and not list(left.iterdir()):
            left.rmdir()
            left.mkdir()
            (left / "somebody's").touch()
        return handle

    monkeypatch.setattr(os, "open", cleared_and_made_again)
    clear_left_behind(temporary, "onnxmem.tmp-")
    assert os.listdir(left) == ["somebody's"]


@pytest.mark.parametrize("made", [temporary_folder, lambda: replacing_folder(Path(tempfile.gettempdir()) / "package")])
@pytest.mark.parametrize("where", ["flock", "rmtree"])
def test_an_interrupt_while_it_is_made_or_removed_leaves_nothing(
    where: str, made: Callable[[], AbstractContextManager[Path]], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = fcntl if where == "flock" else shutil
    really = getattr(module, where)

    def interrupted(*arguments: object, **keywords: object) -> None:
        monkeypatch.setattr(module, where, really)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, where, interrupted)
    (temporary / "package").mkdir()
    (temporary / "package" / "old").touch()
    with pytest.raises(KeyboardInterrupt), made() as folder:
        (folder / "new").touch()
    assert os.listdir(temporary) == ["package"]


def test_a_folder_beside_a_file(temporary: Path) -> None:
    (temporary / "below").mkdir()
    with temporary_folder(beside=temporary / "below" / "m.ort") as folder:
        assert folder.parent == temporary / "below"
    with pytest.raises(UsageError, match="cannot write"), temporary_folder(beside=temporary / "none" / "m.ort"):
        pass


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EDQUOT, "quota")])
def test_a_full_temporary_directory_is_a_sentence(error: OSError) -> None:
    with pytest.raises(UsageError, match=r"the temporary directory '.*' is full") as caught, temporary_folder():
        raise error
    assert "TMPDIR" in caught.value.hint
    with pytest.raises(PermissionError), temporary_folder():  # not about room: not ours to explain
        raise PermissionError(errno.EACCES, "no")


def test_a_temporary_directory_that_cannot_be_written_is_a_sentence(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "none"))
    for make in (temporary_folder, temporary_file):
        with pytest.raises(UsageError, match=r"cannot be written|cannot write into"), make():
            pass
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(temporary / "none")])
    with pytest.raises(UsageError, match="no temporary directory that can be written"), temporary_folder():
        pass
    assert os.listdir(temporary) == []


def test_the_cache_is_private_to_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = os.umask(0o000)
    try:
        folder = private_cache()
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o777)  # as an older version may have left it
        assert private_cache().stat().st_mode & 0o777 == 0o700
        plans.write("plans/some", b"content")
        assert (folder / "plans").stat().st_mode & 0o777 == 0o700
        assert (folder / "plans" / "some").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="it belongs to another user") as raised:
        private_cache()
    assert "XDG_CACHE_HOME" in raised.value.hint
    assert plans.read("plans/some") == b""


def test_a_package_of_tiles_that_another_user_left_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "model.onnx").write_bytes(b"")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UsageError, match="it belongs to another user"):
        tiled_package(tmp_path / "model.onnx")
