"""Limits: a control group of one's own where the system hands one out, else an rlimit."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxmem.measurement import probes
from onnxmem.measurement.limit import RLIMIT, Limit


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup v2 tree in which this process is in /jobs/own."""
    proc, root = tmp_path / "proc" / "self", tmp_path / "cgroup"
    proc.mkdir(parents=True)
    (root / "jobs" / "own").mkdir(parents=True)
    (proc / "cgroup").write_text("0::/jobs/own\n")
    (proc / "mountinfo").write_text(f"30 25 0:26 / {root} rw - cgroup2 cgroup rw\n")
    (root / "jobs" / "cgroup.procs").touch()
    monkeypatch.setattr(probes, "PROC", proc.parent)
    return root / "jobs"


def test_without_a_limit_nothing_is_limited_but_core_dumps() -> None:
    with Limit(None) as limit:
        assert limit.by is None and limit.rlimits == {"RLIMIT_CORE": 0}


def test_a_group_that_is_not_handed_out_gives_an_rlimit(groups: Path) -> None:
    (groups / "cgroup.subtree_control").write_text("cpu pids\n")
    with Limit(1000) as limit:
        assert limit.by == RLIMIT and limit.rlimits[RLIMIT] == 1000
    assert {path.name for path in groups.iterdir()} == {"own", "cgroup.procs", "cgroup.subtree_control"}


def test_a_group_is_made_beside_our_own(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (groups / "cgroup.subtree_control").write_text("cpu memory\n")
    made: list[Path] = []
    make = Path.mkdir

    def mkdir(path: Path) -> None:
        """As the kernel does it: with the control files in it."""
        make(path)
        (path / "cgroup.procs").touch()
        (path / "memory.events").write_text("oom 1\noom_kill 3\n")
        made.append(path)

    def rmdir(path: Path) -> None:
        made.remove(path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)
    with Limit(12345) as limit:
        assert limit.by == "cgroup memory.max" and RLIMIT not in limit.rlimits
        (group,) = made
        assert group.parent == groups and (group / "memory.max").read_text() == "12345"
        limit.admit(77)
        assert (group / "cgroup.procs").read_text() == "77"
        assert limit.oom_kills() == 3
    assert not made


def test_kills_for_memory_are_counted_by_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vmstat").write_text("nr_free_pages 5\noom_kill 2\n")
    monkeypatch.setattr(probes, "PROC", tmp_path)
    assert Limit(None).oom_kills() == 2
