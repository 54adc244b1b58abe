"""Readings of a process: what the kernel says, what is left when it says less, and peaks nobody sampled."""

from __future__ import annotations

import json
import mmap
import shutil
import sys
import time
from pathlib import Path

import pytest

from onnxmem.measurement import probes
from onnxmem.measurement.probes import PeakWatch, Reading, Sampler, read, reset_peak
from onnxmem.unknown import Unknown

MIB = 2**20
SLACK = MIB  # the kernel counts resident pages in batches


def touch(size: int) -> mmap.mmap:
    """Anonymous memory, every page of it written."""
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, size, mmap.PAGESIZE):
        block[page] = 1
    return block


def known(value: int | Unknown) -> int:
    assert isinstance(value, int), value
    return value


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this process's /proc/self to take files away from."""
    folder = tmp_path / "proc" / "self"
    folder.mkdir(parents=True)
    for name in ("status", "statm", "smaps", "smaps_rollup", "cgroup", "mountinfo"):
        shutil.copyfile(f"/proc/self/{name}", folder / name)
    monkeypatch.setattr(probes, "PROC", folder.parent)
    return folder


def test_the_quantities_fit_together() -> None:
    block = touch(32 * MIB)
    reading = read()
    rss = known(reading.rss)
    assert rss > 32 * MIB
    assert known(reading.anon) + known(reading.file) == rss
    assert known(reading.anon) > 32 * MIB
    assert 32 * MIB < known(reading.uss) <= known(reading.pss) <= rss < known(reading.virtual)
    assert known(reading.peak_rss) >= rss
    block.close()
    assert rss - known(read().rss) == pytest.approx(32 * MIB, abs=SLACK)


def test_a_block_freed_before_anyone_looked_is_in_the_peak() -> None:
    with PeakWatch() as watch:
        before = known(read().rss)
        touch(64 * MIB).close()
        after = known(read().rss)
    assert after - before < SLACK
    assert watch.peak.exact
    assert known(watch.peak.rss) - before == pytest.approx(64 * MIB, abs=SLACK)


def test_an_earlier_peak_is_forgotten() -> None:
    touch(64 * MIB).close()
    assert reset_peak() is None
    reading = read()
    assert known(reading.peak_rss) - known(reading.rss) < SLACK


def test_without_smaps_rollup_the_mappings_are_added_up(proc: Path) -> None:
    """How much is shared depends on other processes, too, and these come and go: copies of a quiet moment agree."""
    apart: dict[str, int] = {}
    for _ in range(100):
        for name in ("smaps", "smaps_rollup"):
            shutil.copyfile(f"/proc/self/{name}", proc / name)
        direct = read()
        (proc / "smaps_rollup").unlink()
        added = read()
        assert direct.source.endswith("smaps_rollup") and added.source.endswith("smaps")
        sums = ("rss", "pss", "uss", "anon", "file")
        apart = {name: known(getattr(added, name)) - known(getattr(direct, name)) for name in sums}
        if max(map(abs, apart.values())) < SLACK // 4:
            return
    pytest.fail(f"at no moment were they the same: {apart}")


def test_without_any_smaps_shares_are_unknown_and_the_rest_is_not(proc: Path) -> None:
    (proc / "smaps_rollup").unlink()
    (proc / "smaps").unlink()
    reading = read()
    assert isinstance(reading.pss, Unknown) and "smaps" in reading.pss.reason
    assert isinstance(reading.uss, Unknown)
    assert known(reading.anon) + known(reading.file) == known(reading.rss) > 0


def test_without_permission_for_clear_refs_the_peak_is_sampled_and_says_so(proc: Path) -> None:
    (proc / "clear_refs").mkdir()  # even root cannot write to it
    assert isinstance(reset_peak(), Unknown)
    with PeakWatch() as watch:
        time.sleep(0.05)
    assert not watch.peak.exact
    assert "sampled every 2 ms" in watch.peak.method and "clear_refs" in watch.peak.method
    assert known(watch.peak.rss) > 0


def test_without_proc_psutil_answers_what_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PROC", tmp_path / "none")
    reading = read()
    assert reading.source == "psutil"
    assert known(reading.rss) > MIB and known(reading.virtual) > MIB
    assert isinstance(reading.pss, Unknown) and sys.platform in reading.pss.reason
    assert isinstance(reset_peak(), Unknown)
    with PeakWatch() as watch:
        pass
    assert not watch.peak.exact and known(watch.peak.rss) > MIB


def test_readings_survive_json() -> None:
    reading = read()
    assert Reading.from_document(json.loads(json.dumps(reading.document()))) == reading
    gone = read(2**22 + 1)
    assert Reading.from_document(json.loads(json.dumps(gone.document()))) == gone
    assert gone.document()["rss_bytes"] is None


def test_a_sampler_sees_a_block_that_stays_a_while() -> None:
    with Sampler(interval=0.002) as sampler:
        block = touch(32 * MIB)
        before = len(sampler.samples)
        while len(sampler.samples) < before + 2:  # the first may have been on its way
            time.sleep(0.002)
        block.close()
    seen = [sample.anon for sample in sampler.samples]
    assert max(seen) - seen[0] == pytest.approx(32 * MIB, abs=2 * SLACK)


def test_the_control_group_is_found_below_its_mount(proc: Path, tmp_path: Path) -> None:
    point = tmp_path / "cgroup"
    (point / "job").mkdir(parents=True)
    (point / "job" / "memory.peak").write_text("123456\n")
    (proc / "cgroup").write_text("1:cpu:/\n0::/box/job\n")
    (proc / "mountinfo").write_text(f"30 25 0:26 /box {point} rw - cgroup2 cgroup rw\n")
    assert probes.cgroup_peak() == 123456
    (point / "job" / "memory.peak").unlink()
    peak = probes.cgroup_peak()
    assert isinstance(peak, Unknown) and "memory.peak" in peak.reason
