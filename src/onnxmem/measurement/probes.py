"""How much memory does a process take right now, and how much did it take at most? And the whole system?

The kernel is asked, not estimated: `/proc/PID/smaps_rollup` for what is resident, `status` and `statm` for the rest,
`VmHWM` for the peak. `ru_maxrss` is never used: a child inherits its parent's peak through fork and exec, so a small
process started by a large one reports the large one. Where there is no `/proc`, psutil answers what it can.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from onnxmem.documents import Record, stored
from onnxmem.unknown import Bytes, Unknown, add, subtract

PROC = Path("/proc")

_KIB = 1024
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclass(frozen=True)
class Reading(Record):
    """The memory of one process at one moment, in bytes; what cannot be known says why."""

    rss: Bytes = stored("rss_bytes")
    """Resident: pages in memory, whoever else has them too."""
    pss: Bytes = stored("pss_bytes")
    """Resident, with every shared page divided by the number of processes that share it."""
    uss: Bytes = stored("uss_bytes")
    """Resident and in no other process: what would come back if this one ended."""
    anon: Bytes = stored("anon_bytes")
    """Resident without a file behind it: heap, arenas, stacks, and changed pages of private mappings."""
    file: Bytes = stored("file_bytes")
    """Resident with a file (or shared memory) behind it: rss − anon."""
    virtual: Bytes = stored("virtual_bytes")
    """Address space, resident or not."""
    swap: Bytes = stored("swap_bytes")
    """Moved out of memory; a process that is swapped out looks small and is not."""
    peak_rss: Bytes = stored("peak_rss_bytes")
    """The most that was resident since the process began or `reset_peak` was called.

    The kernel counts pages per processor and in batches, so this can be a few hundred KiB off.
    """
    at: float = stored("at_seconds")
    """When: `time.monotonic()`, which parent and child share; in a trial, since its process was started."""
    source: str = stored("source")
    """Which file or library it comes from."""


@dataclass(frozen=True)
class Peak:
    """The most that was resident while something happened."""

    rss: Bytes
    exact: bool
    """True if the kernel kept it; False if it is only the largest sample, and a short peak may have been missed."""
    method: str
    """How it was measured, for the reader."""


@dataclass(frozen=True)
class Sample(Record):
    """One cheap look at a process, for a timeline."""

    at: float = stored("seconds")
    rss: int = stored("rss_bytes")
    file: int = stored("file_bytes")

    @property
    def anon(self) -> int:
        """Resident without a file behind it."""
        return self.rss - self.file


@dataclass(frozen=True)
class System(Record):
    """The system at one moment, in bytes. All processes move these figures."""

    available: Bytes = stored("available_bytes")
    """What a new process could get without swapping.

    Not the place to look for what was just freed: recent kernels keep freed pages in lists of each processor, hundreds
    of MiB of them, and count them as available only when the lists are emptied.
    """
    anon: Bytes = stored("anon_bytes")
    """Anonymous memory of all processes: falls at the moment it is freed."""


def read(pid: int | None = None) -> Reading:
    """What does this process (or process `pid`) take now?"""
    if not _has_proc():
        return _read_with_psutil(pid)
    now = time.monotonic()
    status = _fields(_folder(pid) / "status")
    if isinstance(status, Unknown):
        return _nothing(status, now, "/proc")
    totals, source = _totals(pid)
    rss: Bytes
    pss: Bytes
    uss: Bytes
    if isinstance(totals, Unknown):
        # The kernel's own counters know resident pages, but not who shares them.
        rss, anon = _of(status, "VmRSS"), _of(status, "RssAnon")
        pss = uss = totals
    else:
        rss, anon, pss = (_of(totals, name) for name in ("Rss", "Anonymous", "Pss"))
        uss = add(_of(totals, "Private_Clean"), _of(totals, "Private_Dirty"))
    file, peak = subtract(rss, anon), _of(status, "VmHWM")
    if isinstance(peak, int) and isinstance(rss, int):
        # The kernel's peak is counted in batches; what was seen with our own eyes cannot have been more than the peak.
        peak = max(peak, rss)
    return Reading(rss, pss, uss, anon, file, _of(status, "VmSize"), _of(status, "VmSwap"), peak, at=now, source=source)


def reset_peak(pid: int | None = None) -> Unknown | None:
    """Begin a new peak: `peak_rss` is then the most resident from now on. Unknown says why it could not be done."""
    if not _has_proc():
        return Unknown("this system keeps no peak that can be reset")
    try:
        # 5 resets the peak only; 1 to 4 would also clear page bits that the kernel's reclaim looks at.
        (_folder(pid) / "clear_refs").write_bytes(b"5")
    except OSError as error:
        return Unknown(f"/proc/PID/clear_refs cannot be written: {error.strerror}")
    return None


def sample(pid: int | None = None) -> Sample | None:
    """A cheap look (microseconds, no lock on the process's memory); None once the process is gone."""
    now = time.monotonic()
    if not _has_proc():
        reading = _read_with_psutil(pid)
        return Sample(now, reading.rss, 0) if isinstance(reading.rss, int) else None
    try:
        return _sample_of((_folder(pid) / "statm").read_bytes(), now)
    except OSError:
        return None


def _sample_of(statm: bytes, now: float) -> Sample | None:
    _, resident, shared, *_ = statm.split()
    rss = int(resident) * _PAGE
    # A zombie still has a statm, of zeros.
    return Sample(now, rss, int(shared) * _PAGE) if rss else None


class Sampler:
    """Looks at a process every few milliseconds from a thread; used as a context manager."""

    def __init__(self, pid: int | None = None, interval: float = 0.005) -> None:
        self.interval = interval
        self._pid = pid
        self.seconds = 0.0
        """Processor time the thread has taken; complete when the block has ended."""
        # Opened once: finding the file anew each time costs ten times as much as reading it.
        self._statm: int | None = None
        self._seen: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="onnxmem-sampler", daemon=True)

    def __enter__(self) -> Sampler:
        with suppress(OSError):
            self._statm = os.open(_folder(self._pid) / "statm", os.O_RDONLY)
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        if self._statm is not None:
            os.close(self._statm)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What was seen so far, in order."""
        return tuple(self._seen)

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            if not self._look():
                break
        self.seconds = time.thread_time()

    def _look(self) -> bool:
        if self._statm is None:
            seen = sample(self._pid)
        else:
            try:
                seen = _sample_of(os.pread(self._statm, 256, 0), time.monotonic())
            except OSError:  # it has been waited for
                seen = None
        if seen is not None:
            self._seen.append(seen)
        return seen is not None


class PeakWatch:
    """What is the most that is resident inside this block? `with PeakWatch() as watch: …`, then `watch.peak`.

    Exact where the kernel's peak can be reset. Elsewhere a thread samples, and the result says so.
    """

    def __init__(self, pid: int | None = None, interval: float = 0.002) -> None:
        self._pid, self._interval = pid, interval
        self._sampler: Sampler | None = None
        self.peak = Peak(Unknown("the watched block has not ended"), False, "")

    def __enter__(self) -> PeakWatch:
        refused = reset_peak(self._pid)
        self._refused = refused.reason if refused else ""
        if refused:
            self._sampler = Sampler(self._pid, self._interval).__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._sampler is None:
            self.peak = Peak(read(self._pid).peak_rss, True, "VmHWM, reset before")
            return
        self._sampler.__exit__(kind, error, None)
        largest = max((seen.rss for seen in self._sampler.samples), default=None)
        rss = Unknown("the process was gone before it could be sampled") if largest is None else largest
        every = f"{self._interval * 1000:g} ms"
        self.peak = Peak(rss, False, f"sampled every {every}, because {self._refused}")


def cgroup_peak(pid: int | None = None) -> Bytes:
    """The most memory the process's control group ever took, page cache and other members included."""
    folder = cgroup_folder(pid)
    if isinstance(folder, Unknown):
        return folder
    try:
        return int((folder / "memory.peak").read_bytes())
    except (OSError, ValueError):
        return Unknown(
            "the control group has no memory.peak (it needs cgroup v2 with the memory controller, Linux 5.19)"
        )


def cgroup_folder(pid: int | None = None) -> Path | Unknown:
    """Where the files of the process's cgroup v2 group are."""
    try:
        lines = (_folder(pid) / "cgroup").read_text().splitlines()
        mounts = (PROC / "self" / "mountinfo").read_text().splitlines()
    except OSError as error:
        return Unknown(f"control groups cannot be read: {error.strerror}")
    group = next((line[3:] for line in lines if line.startswith("0::")), None)
    # A line of mountinfo: … root mount-point options [optional …] - type source options
    mount = next((line.split() for line in mounts if " - cgroup2 " in line), None)
    if group is None or mount is None:
        return Unknown("there is no cgroup v2 here")
    root, point = mount[3], mount[4]
    return Path(point, group.removeprefix(root if root != "/" else "").lstrip("/"))


def read_system() -> System:
    """The system now."""
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
    except OSError:
        return System(_available(), Unknown("this system does not tell"))
    fields = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    missing = Unknown("the kernel does not tell")
    return System(fields.get("MemAvailable", missing), fields.get("AnonPages", missing))


def _folder(pid: int | None) -> Path:
    return PROC / ("self" if pid is None else str(pid))


def _has_proc() -> bool:
    return (PROC / "self").exists()


def _totals(pid: int | None) -> tuple[dict[str, int] | Unknown, str]:
    """The sums over all mappings: from the kernel if it makes them (since 4.14), else from adding up."""
    for name in ("smaps_rollup", "smaps"):
        fields = _fields(_folder(pid) / name)
        # A process that has ended, or a kernel thread, has an empty file.
        if not isinstance(fields, Unknown) and "Rss" in fields:
            return fields, f"/proc/PID/{name}"
    reason = fields.reason if isinstance(fields, Unknown) else "the process has no memory of its own (it has ended)"
    return Unknown(reason), "/proc/PID/status"


def _fields(path: Path) -> dict[str, int] | Unknown:
    """The `Name: 123 kB` lines of a file in bytes; names that appear again are added up."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        return Unknown(f"/proc/PID/{path.name} cannot be read: {error.strerror}")
    sizes: dict[str, int] = {}
    for line in lines:
        if line.endswith(b" kB"):
            name, _, amount = line.partition(b":")
            key = name.decode()
            sizes[key] = sizes.get(key, 0) + int(amount[:-3]) * _KIB
    return sizes


def _of(fields: dict[str, int], name: str) -> Bytes:
    return fields[name] if name in fields else Unknown(f"the kernel reports no {name}")


def _nothing(why: Unknown, at: float, source: str) -> Reading:
    return Reading(why, why, why, why, why, why, why, why, at=at, source=source)


def _read_with_psutil(pid: int | None) -> Reading:
    now = time.monotonic()
    try:
        import psutil  # noqa: PLC0415
    except ImportError:
        return _nothing(Unknown("psutil is not installed"), now, "nothing")
    try:
        process = psutil.Process(pid)
        basic = process.memory_info()
    except psutil.Error as error:
        return _nothing(Unknown(str(error)), now, "psutil")
    try:
        uss: Bytes = process.memory_full_info().uss
    except (psutil.Error, AttributeError) as error:
        uss = Unknown(f"psutil cannot tell: {error}")
    only = f"{sys.platform} does not tell"
    # Windows keeps a peak, but since the process began: it is right only where nothing was to be reset.
    peak: Bytes = getattr(basic, "peak_wset", Unknown(only))
    unknown = Unknown(only)
    return Reading(
        int(basic.rss), unknown, uss, unknown, unknown, int(basic.vms), unknown, peak, at=now, source="psutil"
    )


def _available() -> Bytes:
    try:
        import psutil  # noqa: PLC0415
    except ImportError:
        return Unknown("psutil is not installed")
    return int(psutil.virtual_memory().available)
