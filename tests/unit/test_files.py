import fcntl
import os
import signal
import stat
from pathlib import Path

import pytest

from onnxmem.errors import UsageError
from onnxmem.files import partial_prefix, replacing, write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "plan.csv"
    write_text(target, "old")
    write_text(target, "new")
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["plan.csv"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "plan.csv"
    write_text(target, "old")

    def fail_half_way() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise ValueError

    with pytest.raises(ValueError):
        fail_half_way()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.csv"]


def test_an_interrupt_while_it_is_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "flock", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "plan.csv", "x")
    assert os.listdir(tmp_path) == []


def test_a_new_file_has_ordinary_permissions(tmp_path: Path) -> None:
    write_text(tmp_path / "new.csv", "x")
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new.csv", "plain")}
    assert len(modes) == 1


def test_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        write_text(tmp_path / "nowhere" / "plan.csv", "x")


@pytest.mark.parametrize("name", ["plain/plan.csv", "plan." + "x" * 300])
def test_where_no_file_can_be_it_is_said_as_that(name: str, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with pytest.raises(UsageError, match="cannot write"):
        write_text(tmp_path / name, "x")


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "plan.csv"
    (tmp_path / f"{partial_prefix(target)}12345678.csv").write_text("half")
    others = [".plan.csv.bak", ".plan.csv", f"{partial_prefix(tmp_path / 'other.csv')}12345678.csv"]
    for name in others:
        (tmp_path / name).write_text("mine")
    write_text(target, "new")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "plan.csv"])


def test_what_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "plan.csv"
    with replacing(target) as temporary:
        temporary.write_text("first")
        write_text(target, "second")
        assert temporary.read_text() == "first" and target.read_text() == "second"
    assert target.read_text() == "first" and os.listdir(tmp_path) == ["plan.csv"]


def test_a_pipe_that_is_named_like_a_file_left_behind_is_not_waited_for(tmp_path: Path) -> None:
    target = tmp_path / "plan.csv"
    pipe = tmp_path / f"{partial_prefix(target)}12345678.csv"
    os.mkfifo(pipe)

    def waited(*_: object) -> None:
        raise AssertionError("it waited for the pipe")

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(10)
    try:
        write_text(target, "new")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert target.read_text() == "new" and pipe.is_fifo()
