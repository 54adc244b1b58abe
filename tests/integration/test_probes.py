"""Looking at other processes, also at those that are gone."""

from __future__ import annotations

import os
import subprocess
import sys

from onnxmem.measurement import probes
from onnxmem.measurement.probes import read, reset_peak
from onnxmem.unknown import Unknown

MIB = 2**20
SLACK = MIB  # the kernel counts resident pages in batches
QUANTITIES = ("rss", "pss", "uss", "anon", "file", "virtual", "swap", "peak_rss")


def known(value: object) -> int:
    assert isinstance(value, int), value
    return value


def test_another_process_can_be_read_and_its_peak_reset() -> None:
    code = "b = bytearray(80 << 20); del b; print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    before = read(child.pid)
    assert known(before.peak_rss) - known(before.rss) > 70 * MIB
    assert reset_peak(child.pid) is None
    after = read(child.pid)
    assert known(after.peak_rss) - known(after.rss) < SLACK
    child.communicate(b"\n")


def test_a_process_that_is_gone_is_unknown() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    reading = read(child.pid)
    assert all(isinstance(getattr(reading, name), Unknown) for name in QUANTITIES)
    assert probes.sample(child.pid) is None


def test_a_zombie_has_no_memory_to_speak_of() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert isinstance(read(child.pid).rss, Unknown)
    assert probes.sample(child.pid) is None
    child.wait()


def test_a_process_does_not_find_its_own_reading() -> None:
    """In a process of its own: other threads of this one may free memory in between."""
    # Neighbours that may be written and those that may not stay mappings of their own.
    code = """
import mmap
from onnxmem.measurement.smaps import classify
protections = (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE)
many = [mmap.mmap(-1, mmap.PAGESIZE, prot=protections[k % 2]) for k in range(6000)]
before, after = ({kind.name: kind.rss for kind in classify(())} for _ in range(2))
print(*(abs(after[kind] - before[kind]) for kind in ("heap", "arenas")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(int(moved) < MIB / 4 for moved in done.stdout.split()), done.stdout
